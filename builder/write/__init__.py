"""Rows to sorted files, once a task; the ids of new keys; and the snapshot that names the files. In order of reading:

run.py              the write job: one action; with ids counted and claimed before it
bucket_writer.py    what a task does: keeps the last record of each key, encodes, writes
bucket_ids.py       numbers the rows of a bucket
report.py           what a task tells the driver of a bucket
id_assignment.py    ids for new keys, densely: count, claim, cut into ranges, check
commit.py           reports to a manifest, checked and committed
"""
