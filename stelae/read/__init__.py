"""From a key to its row: the semantics of lookups, for the server and for `stelae lookup -w` alike. Nothing here writes
a snapshot, and nothing knows of HTTP. In the order to read:

table_reader.py         what a table's definition says of keys, prefixes and selections; no files
projection.py           selected columns: key values and row bytes become an answer
snapshot_reader.py      one snapshot, open: key to row, keys to rows
prefix_scan.py          prefix to rows, page by page
partition_tablets.py    the open buckets of one partition of a snapshot
overlay.py              online rows above the buckets of a snapshot
hash_index.py           finds many keys at a time; build_index.py makes one
open_snapshot.py        a snapshot verified, its tablets made and opened; prepare_tablets.py: the part that takes long
background_process.py   work that another process of low priority does
"""
