"""Processes of one port. The leader owns the tables and passes connections on; followers answer lookups from the same
files.

follower_pool.py     starts followers, tells them what to serve, ends them
follower_handle.py   one of them, as the leader sees it
follower.py          the other process
messages.py          what a follower is told; channel.py: how
followed_table.py    one table of a follower, as it was told
connections.py       passes accepted connections to followers
forwarding.py        what only the leader can answer goes back to it
"""
