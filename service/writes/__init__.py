"""Online writes: the owner of a table finds keys new, gives them ids, waits for the log, and shows their rows.

table_writer.py   the way to become a table's owner, to stay it, and to give it up
owner.py          owning: ids, records, the flush, rows in sight, a swap
insertion.py      one request: known, pending, needs ids, new

Nothing of HTTP is here; routes call `TableWriter.insert`. What counts in the log, and who may write it, is decided in
stelae/log and stelae/ownership.
"""
