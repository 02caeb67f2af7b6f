"""Online writes: who may write a table, which ids it may give, and the log that keeps what was written.

Invariants: durable before acknowledged; one owner a table; an id is claimed before it is used.

    epochs.py        who owns a table: an epoch, taken by put-if-absent
    id_claims.py     which ids an owner may give
    records.py       the bytes of a log
    writer.py        a log read, written and recovered
    takeover.py      the three together, in the one order that is safe
    new_rows.py      the rows of new keys; replay.py: rows of the log above a snapshot
"""
