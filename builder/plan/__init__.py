"""What a build decides before it moves rows.

options.py       options of a build, each declared once
build_plan.py    partitions, buckets and tasks of a build
partitions.py    partition values and their folders
placement.py     rows to the task of their bucket, in the JVM
"""
