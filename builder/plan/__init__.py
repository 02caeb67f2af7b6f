"""What a build decides before it moves rows, and what all of its steps share.

options.py       options of a build, each declared once
build_plan.py    partitions, buckets and tasks of a build
partitions.py    partition values and their folders
placement.py     rows to the task of their bucket, in the JVM
columns.py       names of the columns that a build adds on the way
sql_text.py      SQL expressions and queries, composed as text
python_steps.py  steps that run in Python
errors.py        our errors found again under Spark's
row_errors.py    expressions that stop the job with a row's key named
"""
