"""From files and frames to checked change records.

files.py            reads files with the table's types
change_records.py   any frame: rows checked, typed and ordered, as change records
match_columns.py    columns of the input to those of the table, by name and type
type_limits.py      lengths and digits that the table's types limit
arrival.py          the order in which records came in
"""
