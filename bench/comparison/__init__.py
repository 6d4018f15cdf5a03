"""Compare Névé with other engines on one evolved table: `make bench`.

A lineitem like TPC-H's lies in three partition specs. Each engine makes and changes its own copy, in a process of its
own, on the same machine in the same run; the two Sparks have the same settings. Every job is measured once, after the
same jobs on a small table: CPU seconds and memory of the whole tree of processes, and the time it took.
"""
