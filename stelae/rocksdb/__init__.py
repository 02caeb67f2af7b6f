"""The only code that talks to RocksDB: sorted files written, tablets made of them, online rows in memory.

sst.py           SstWriter, Tablet, OnlineRows, BlockCache
"""
