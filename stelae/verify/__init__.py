"""What holds a table against all that it says of itself. In the order to read:

verify.py          holds a snapshot, its ids and its log against what they say
verify_files.py    every byte of the files; verify_ids.py: claims, epochs and ids; problem.py: what is wrong
"""
