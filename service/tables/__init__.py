"""What is served: each table is one reference to the reader of a snapshot; a swap replaces the reference.

served_table.py       a table, its current reader and those that are kept
pinned_snapshots.py   snapshots that requests pin
index_builder.py      hash indexes for tables that batches ask for
data_folder.py        where open tablets have their folders
counts.py             what is counted
"""
