"""The only code that talks to RocksDB: sorted files written, tablets made of them, online rows in memory.

sst_writer.py    rows of one bucket in key order  →  one immutable sorted file
tablet.py        the sorted files of one bucket   →  get, multi_get, scan
online_rows.py   rows that are in no file yet     →  the same, and put_many
database.py      options, scans and errors of all three; block_cache.py: the cache that tablets share
"""
