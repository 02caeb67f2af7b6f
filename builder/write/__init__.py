"""Rows to sorted files, once a task; the ids of new keys; and the snapshot that names the files. In order of reading:

    write_job.py       the write job: one action; with ids counted and claimed before it
    bucket_writer.py   what a task does: keeps the last record of each key, encodes, writes
    id_numbering.py    numbers the rows of a bucket
    bucket_report.py   what a task tells the driver of a bucket
    id_assignment.py   ids for new keys, densely: count, claim, cut into ranges, check
    commit.py          reports to a manifest, checked and committed

Files are immutable and have new names; only the commit makes them count.
"""
