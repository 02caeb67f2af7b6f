"""What looks after a warehouse as a whole.

verify.py        reads every byte of a snapshot, and of the log, again
"""
