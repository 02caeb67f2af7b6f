"""What holds a table against all that it says of itself. In the order to read:

verify.py          holds a snapshot, its ids and its log against what they say
verify_files.py    every byte of the files, and what a problem is; verify_ids.py: claims, epochs and ids
"""
