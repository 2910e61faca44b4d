"""Ingestion: a job reads a source in batches, transforms the rows and writes them to a table.

`job_file` reads what to do, sources (`folder`, `table_changes`, `kafka`) say what comes next, and
`run` does it. Where a job has come to is said inside the commits of its target (`checkpoint`), so a
batch and the note of it are one.
"""
