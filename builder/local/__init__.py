"""A local Spark, for `stelae build` and the demo: a user's own job brings its own session.

session.py          a small Spark session on this machine
quiet_session.py    the same for commands: what Spark says goes to a file
java.py             finds a Java that Spark runs on, or says what installs one
"""
