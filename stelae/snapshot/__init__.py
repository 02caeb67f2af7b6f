"""A table's snapshots: what a snapshot is, how one is committed, which ones are kept; and the warehouse that has the
tables.

    warehouse.py     databases and tables, every version of their definitions
    manifest.py      a snapshot as a value; manifest_checks.py its invariants, manifest_json.py its file
    snapshots.py     commit, rollback, fence; retention.py: expire, clean
"""
