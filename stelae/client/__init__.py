"""Lookups and inserts over HTTP, from Python.

operations.py         what a call asks and what becomes of the answers: generators without I/O, for both clients
json_codec.py         keys and rows by a table's schema, in JSON; arrow_codec.py: in Arrow; dataframes.py: other libraries
retry.py              what is asked again, and when
client.py             carries operations out over connection_pool.py, which speaks http1.py
async_client.py       the same with asyncio
stats.py              what a client counted
"""
