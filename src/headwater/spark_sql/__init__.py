"""SQL on tables: what Spark's own SQL cannot say to a Python data source, said here.

run.py          one statement in, a DataFrame out; what is not ours goes to Spark unchanged
original.py     the text of a statement, which a query keeps but for the names in it
names.py        which table a name or a path means
ddl.py          CREATE TABLE, DROP TABLE, TRUNCATE, indexes
dml.py          INSERT, MERGE, UPDATE, DELETE
selects.py      SELECT, with TIMESTAMP AS OF and hudi_table_changes
unparsed.py     what sqlglot cannot parse and Spark may
procedures.py   CALL, with Hudi's procedure names
"""
