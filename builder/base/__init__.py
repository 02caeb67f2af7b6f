"""The rows that changes are merged into: those of the parent snapshot, and those of the log above it.

snapshot_rows.py   rows of a snapshot, as a frame; `read` gives them to users
log_rows.py        rows of the log above the parent
rows.py            both together
"""
