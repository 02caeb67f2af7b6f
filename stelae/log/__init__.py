"""The log of online writes: what was written to a table since its snapshot.

Invariants: durable before acknowledged; what one owner has written, the next one recovers. Who that is and which ids it
may give is decided in stelae/ownership; what a snapshot says is not decided here. In the order to read:

records.py            what an online write says; segments.py: files of such records
counted_segments.py   which segments count, and up to which record
reader.py             the log read, by anybody, and recovered, by its next owner
writer.py             the log written, by its owner; group_commit.py: by many requests at a time
table_log.py          where a table's log is, and which part of it can go
replay.py             rows of the log above a snapshot
errors.py             what went wrong with a log, and what to do
"""
