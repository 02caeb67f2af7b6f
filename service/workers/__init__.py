"""Processes of one port. The leader owns the tables and passes connections on; followers answer lookups from the same
files.

follower_pool.py     starts followers, tells them what to serve, ends them
follower_handle.py   one of them, as the leader sees it
follower.py          the other process
shared_state.py      what a follower is told; channel.py: how
connections.py       passes accepted connections to followers
forwarding.py        what only the leader can answer goes back to it
"""
