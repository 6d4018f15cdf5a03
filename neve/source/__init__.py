"""The Spark data source `neve`: `spark.read.format("neve")` and `df.write.format("neve")`.

Spark runs a Python data source in separate processes. Workers beside the driver create it, plan and commit; workers
beside the executors read and write rows. Only values are sent between them; nothing here keeps a connection.
"""
