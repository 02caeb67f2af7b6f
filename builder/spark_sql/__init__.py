"""How the builder speaks to Spark: expressions and queries as text, and our errors on their way back. No table
semantics.

    sql_text.py        SQL expressions and queries, composed as text
    added_columns.py   names of the columns that a build adds on the way
    python_steps.py    steps that run in Python workers
    row_errors.py      expressions that stop the job, with the key of the row
    spark_errors.py    our errors found again under Spark's

It is not called sql: `stelae.builder` keeps that name for a function.
"""
