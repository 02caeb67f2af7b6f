"""Who may write a table online, and which ids it may give.

Invariants: one owner a table; an id is claimed before it is used. No requests are answered here. In the order to read:

epochs.py      who owns a table: an epoch, taken by put-if-absent; whoever had the one before is fenced
id_claims.py   which ids an owner may give
takeover.py    epoch, fence, snapshot and log, in the one order that is safe
new_rows.py    the rows of new keys, with the ids that are claimed for them
"""
