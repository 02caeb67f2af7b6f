"""Rows to sorted files, once a task; and the ids of new keys.

bucket_writer.py    keeps the last record of each key, encodes, writes
id_assignment.py    numbers new keys densely: count, claim, assign
"""
