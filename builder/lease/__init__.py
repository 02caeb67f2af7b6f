"""Who may write a table while a build runs.

lease.py          the lease: the parent, who owns the table, up to where its log is covered; made once, handed down
owner_client.py   asks a server that owns the table: for ids, for what it has acknowledged, for a snapshot to be served
"""
