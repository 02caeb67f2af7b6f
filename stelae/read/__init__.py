"""From a key to its row: the semantics of lookups, for the server and for `stelae lookup -w` alike.

open_snapshot.py        a snapshot verified, its tablets made and opened; prepare_tablets.py: the part that takes long
snapshot_reader.py      key to row, keys to rows, prefix to rows
hash_index.py           finds many keys at a time; build_index.py makes one
background_process.py   work that another process of low priority does
"""
