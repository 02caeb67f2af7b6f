"""Where files live, and the one promise that all else rests on: put-if-absent, durable.

No table semantics here: names of files (paths.py), bytes and their checksums.

    paths.py         makes and parses every file name of a warehouse
    storage.py       what every storage promises
    open.py          which storage is at a path or a URL: local.py, object_store.py or memory.py
    view.py          one folder of a storage, as a storage
    local_files.py   files of this machine, as every storage meets them
    checksum.py      the checksum of files
    sealed_json.py   small JSON files that carry their own, and are read strictly
    file_lock.py     who on this machine is alive
"""
