"""Rows to sorted files, once a task; and the ids of new keys.

run.py              the write job: one action; with ids counted and claimed before it
bucket_writer.py    keeps the last record of each key, encodes, writes
id_assignment.py    numbers new keys densely: count, claim, assign
commit.py           reports to a manifest, checked and committed
"""
