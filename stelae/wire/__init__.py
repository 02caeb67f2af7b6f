"""What server and client agree on: paths, parameters and media types of HTTP, and the Arrow streams in its bodies.

    http_api.py      paths, headers, parameters, limits
    arrow_stream.py  keys and rows as Arrow streams, read without trust
    ipc_messages.py  what the messages of a stream declare, read before anything is decoded

Bytes and values only: no sockets, no tables.
"""
