"""What a build decides before it moves rows, and what all of its steps share.

build_plan.py    partitions, buckets and tasks of a build
partitions.py    partition values and their folders
placement.py     rows to the task of their bucket, in the JVM
errors.py        our errors found again under Spark's
"""
