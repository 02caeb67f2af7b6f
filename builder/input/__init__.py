"""From files and frames to checked change records.

files.py            reads files with the table's types
change_records.py   any frame: rows checked, typed and ordered, as change records
"""
