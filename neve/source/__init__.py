"""Spark at home: tables in Spark's own words, `spark.read.format("neve")` and `df.write.format("neve")`.

Spark runs a Python data source in processes of its own: it is made, planned and committed in workers beside the
driver, and read and written in workers beside the executors. What travels between them are values; nothing here keeps
a connection.
"""
