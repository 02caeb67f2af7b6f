"""Online writes: the owner of a table finds keys new, gives them ids, waits for the log, and shows their rows.

table_writer.py       one table's owner, and the way to become it
"""
