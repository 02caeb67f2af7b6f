"""What server and client agree on: paths, parameters and media types of HTTP, and the Arrow streams in its bodies.

http_api.py      paths, headers, parameters, limits
arrow_stream.py  keys and rows as Arrow streams, read without trust
"""
