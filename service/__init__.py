"""The tablet server (`stelae.service`): serves snapshots that builds have committed, and takes inserts of new keys.

cli.py, server.py   the command `stelae serve`; the process: socket, signals, the line that says that it is ready
app.py              the application: which path goes where
watcher.py          finds new tables and snapshots, loads them, swaps them in
tables/             what is served
writes/             online writes
http/               requests to answers
workers/            several processes on one port
options.py          what can be set

To read it: tables/served_table.py, then http/lookup_routes.py and watcher.py, then writes/. Nothing here imports Spark
or stelae.builder; what both need is in stelae/.
"""
