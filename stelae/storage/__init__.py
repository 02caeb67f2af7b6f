"""Where files live, and the one promise that all else rests on: put-if-absent, durable.

No table semantics here: names of files (paths.py), bytes and their checksums.

    paths.py         makes and parses every file name of a warehouse
    base.py          what every storage promises, and those that there are
    checksum.py      the checksum of files and of small JSON files; sealed_json.py reads such files
    file_lock.py     who on this machine is alive
"""
