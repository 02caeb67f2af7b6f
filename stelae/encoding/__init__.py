"""Values to bytes and back. docs/format.md is the contract, golden bytes in the tests hold it.

Each codec has one scalar path, for a single key, and one vectorised path, for batches; tests hold them equal. Nothing
here opens a file or knows a snapshot.

    arrow.py         the column types in Arrow, and the buffers below its arrays
    values.py        a value as JSON, text, Python: number_values.py, text_values.py, temporal_values.py,
                     nested_values.py; value_codec.py: what they make; temporal.py: dates and times as text
    partitions.py    the values of a partition
    keys.py          key columns to bytes whose order is the order of the values; key_columns.py: one column;
                     vectorised_keys.py: many keys
    buckets.py       which bucket a key is in: Spark's xxhash64, bit for bit
    rows.py          value columns to row bytes: row_header.py, then row_fields.py, which puts side by side the bytes of
                     plain_fields.py and nested_fields.py; row_decoder.py: one row to JSON, the hot path
    row_reader.py    rows of every version of a schema, as rows of one
    byte_cursor.py   bytes of many rows or keys: taken apart and put together; errors.py: what goes wrong in a codec
    key_batch.py     many keys as columns: for batches of lookups
"""
