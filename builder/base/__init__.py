"""What a build starts from: its lease on the table, the rows of the parent snapshot, and those of the log above it.

lease.py            who may write, what the parent is, up to where the log is covered
snapshot_rows.py    rows of the parent snapshot; log_rows.py: rows of the log above it
rows.py             both together: what changes are merged into
owner_client.py     asks the server that owns the table for ids
"""
