"""Online writes: who may write a table, which ids it may give, and the log that keeps what was written.

Invariants: durable before acknowledged; one owner a table; an id is claimed before it is used. What a snapshot says is
not decided here, and no requests are answered. In the order to read:

epochs.py        who owns a table: an epoch, taken by put-if-absent; whoever had the one before is fenced
id_claims.py     which ids an owner may give
records.py       what an online write says; segments.py: files of such records; outline.py: which of them count
reader.py        the log read, by anybody, and recovered, by its next owner
writer.py        the log written, by its owner; group_commit.py: by many requests at a time
errors.py        what went wrong with a log, and what to do
takeover.py      epoch, ids and log together, in the one order that is safe
new_rows.py      the rows of new keys; replay.py: rows of the log above a snapshot
"""
