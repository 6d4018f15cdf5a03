"""Compare Névé with other engines: `make bench`, and `make bench-slopes` for a larger table.

Most jobs use a lineitem like TPC-H's in three partition specs. Each engine makes and changes its own copy, in a process
of its own, on the same machine in the same run; the two Sparks have the same settings. Every job is measured in three
rounds in which the engines take turns, after the same jobs on a small table.
"""
