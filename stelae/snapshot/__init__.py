"""A table's snapshots: what a snapshot is, how one is committed, which ones are kept; and the warehouse that has the
tables.

warehouse.py     databases and tables, every version of their definitions
manifest.py      a snapshot as a value, with its invariants
snapshots.py     commit, rollback, expire, clean
"""
