"""Records of a key become its row, by the rules of stelae/schema/merge_rules.py: SQL text, evaluated in the JVM. What
Spark has no exact function for is a list of inputs, which the writer folds.

    merge.py            base rows and changes as one query; which engine goes which way
    last_record.py      engines that choose a record: sorted by key and merge order, the record of choice last
    record_order.py     arrival, position, lateness and removals, for engines that compute rows
    aggregate.py        engines that compute rows: one expression a column
    expressions.py      the greatest record, exact sums, texts put together
    folds.py            functions that need their inputs one after the other
    position_state.py   values of other records than their row's newest: what rows keep of them
    target_columns.py   some columns set, the others left: deduplicate
    arrow_folds.py      what is folded in the writer
"""
