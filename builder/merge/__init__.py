"""Records of a key become its row, by the rules of stelae/schema/merge_rules.py. Spark expressions, evaluated in the
JVM; what Spark has no exact function for is a list of inputs, which the Arrow stage folds.

    records.py       base rows and changes as one frame; which engine goes which way
last_record.py   engines that choose a record: sorted by key and merge order, the record of choice last
    aggregate.py     engines that compute rows: one expression a column
    functions.py     what is folded in Arrow batches
"""
