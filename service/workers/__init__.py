"""Processes of one port. The leader owns the tables and passes connections on; followers answer lookups from the same
files.

leader.py         starts followers, tells them what to serve, ends them
follower.py       the process beside the leader
shared_state.py   what a follower is told; channel.py: how
connections.py    passes accepted connections to followers
forwarding.py     what only the leader can answer goes back to it
"""
