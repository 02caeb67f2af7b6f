"""Names of the columns that a build adds to rows on their way; tables have none that start so
(`stelae/schema/column_checks.py`).

    change records   the table's columns, ACTION, HIDDEN, arrival (FILE, BLOCK, ORDER), ids for bitmap columns
    on their task    and ORDINAL, TASK
    merged rows      ORDINAL, key and stored columns by number (_0, _1, ...), HIDDEN, RECORDS, FORGOTTEN

Columns of state that files keep (`__stelae_positions`, `__stelae_hidden_since`) are in `stelae/schema/merge_rules.py`.
"""

from __future__ import annotations

from stelae.spark.column_types import HIDDEN_COLUMN as HIDDEN_COLUMN

RESERVED_PREFIX = "__stelae_"

# Change records

ACTION_COLUMN = "__stelae_action"
"""TINYINT: what the record does by its row kind, one of the three actions."""
INSERT, RETRACT, REMOVE = 0, 1, 2
"""Actions. Stored rows insert, whatever their row kinds were once."""
# HIDDEN_COLUMN, BOOLEAN, of rows a tombstone, comes with rows that are read from files; of records it is a -D or -U.
KIND_COLUMN = "__stelae_kind"
"""STRING: the row kind, checked, while records are made."""
ID_COLUMN_PREFIX = "__stelae_id_"
"""BIGINT columns of ids for bitmap columns start so."""
ORDER_COLUMN = "__stelae_order"
"""BIGINT: position of a record in the whole input, or inside its Spark partition after the partition's number; base
rows have -1.
"""
FILE_COLUMN = "__stelae_file"
"""INT: position of the record's file in the input; base rows have -1."""
BLOCK_COLUMN = "__stelae_block"
"""BIGINT: offset of the block inside the file that the record was read with."""
PATH_COLUMN = "__stelae_path"
JOIN_PATH_COLUMN = "__stelae_join_path"
ROW_COLUMN = "__stelae_row"
"""Path and row number that a source of files tells, until FILE and ORDER are made of them."""

# Where rows go

ORDINAL_COLUMN = "__stelae_ordinal"
"""INT: the bucket ordinal that a row belongs to; the first column that the writer gets."""
TASK_COLUMN = "__stelae_task"
"""INT: the task that writes the bucket, where a task writes several."""

PARTITION_COLUMN_PREFIX = "__stelae_partition_"
BUCKETS_COLUMN = "__stelae_buckets"
FIRST_ORDINAL_COLUMN = "__stelae_first_ordinal"
"""Values, buckets and first ordinal of a planned partition, which rows are joined with."""
SUM_COLUMN_PREFIX = "__stelae_sum_"
FORMER_ORDINAL_COLUMN = "__stelae_former_ordinal"
FORMER_KEY_COLUMN_PREFIX = "__stelae_former_key_"
FORMER_ID_COLUMN = "__stelae_former_id"
"""Of rows that an overwrite replaces: their keys keep their ids."""

# The log

PARENT_ORDINAL_COLUMN = "__stelae_parent_ordinal"
"""INT: ordinal among the parent's buckets that a row of the log falls into; null where the parent lacks its partition.
"""
LOGGED_ROW_COLUMN = "__stelae_logged_row"
"""STRUCT: a row of the log, on the task that looks its key up."""
REPLACES_HIDDEN_COLUMN = "__stelae_replaces_hidden"
"""BOOLEAN: the parent has a hidden row of the log row's key."""

REPLACED_COLUMN_PREFIX = "__stelae_replaced_"
"""Key columns of such rows, followed by the id of the column."""

# Merged rows

RECORDS_COLUMN = "__stelae_records"
"""BIGINT: records that went into the row, the stored one included."""
FORGOTTEN_COLUMN = "__stelae_forgotten"
"""BOOLEAN: nothing of the row has to be stored."""

# While rows are merged

ENTRY_COLUMN = "__stelae_entry"
"""STRUCT: the entry of `__stelae_positions` that a record stands for; null for all other records."""
POSITION_COLUMN = "__stelae_position"
"""INT: number of a record of its key in merge order."""
NUMBER_COLUMN = "__stelae_number"
"""INT: number of a record of its key in order of arrival."""
LATE_COLUMN = "__stelae_late"
"""BOOLEAN: a record that arrived earlier has a greater sequence; `_<index>` follows for a sequence group."""
ALIVE_COLUMN = "__stelae_alive"
"""BOOLEAN: false for what was there before the key's last removal."""
EFFECTIVE_COLUMN = "__stelae_effective"
"""BOOLEAN: the record removes its row."""
LIFE_COLUMN = "__stelae_life"
"""BIGINT: removals of the key up to the record."""
OF_LAST_LIFE_COLUMN = "__stelae_of_last_life"
TOP_COLUMN = "__stelae_top"
"""STRUCT: position of the key's newest record; `_<index>` follows for a sequence group."""
STORED_COLUMN = "__stelae_stored"
"""STRUCT: what a partial update leaves as it is."""
REMOVED_COLUMN = "__stelae_removed"
INSERTS_COLUMN = "__stelae_inserts"
MINTED_COLUMN = "__stelae_minted"
RESULT_COLUMN_PREFIX = "__stelae_result_"
