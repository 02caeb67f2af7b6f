"""A projection: the columns that a request selects, and how key values and row bytes become an answer.

    one row      key values, row bytes          ──► {"column": JSON value, ...}      Projection.row
    a batch      key arrays, array of row bytes ──► array of structs                 Projection.structs

Key columns are not in the row bytes (`stelae/encoding/rows.py`): a projection puts them among the others, in the order
that was asked for. It is made once a selection, for `row` is called for each row that is found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from stelae.encoding.arrow import arrow_type
from stelae.encoding.key_batch import KeyValues
from stelae.encoding.row_reader import RowReader
from stelae.encoding.value_codec import as_is
from stelae.encoding.values import value_codec
from stelae.schema.table_schema import TableSchema

JsonRow = dict[str, Any]

MAX_PROJECTIONS = 256
"""Selections of columns that a table keeps prepared. Callers choose them, so they are bounded."""


class Projection:
    """A selection of columns: makes an answer from key values and row bytes."""

    row: Callable[[KeyValues, bytes], JsonRow | None]
    """The selected columns of one row, in order; None for a hidden row."""

    def __init__(self, schema: TableSchema, rows: RowReader, columns: Sequence[str]) -> None:
        self.columns = tuple(columns)
        self._rows = rows
        self._values = [name for name in columns if name not in schema.primary_key]
        self._key_at = {name: index for index, name in enumerate(schema.primary_key)}
        positions = self._key_at
        decode = rows.json_decoder([name for name in columns if name not in positions], columns)
        keys = [
            (name, positions[name], value_codec(schema.by_name[name]).to_json) for name in columns if name in positions
        ]
        self.row = _row_maker(decode, keys)
        self.type = pa.struct([pa.field(name, arrow_type(schema.by_name[name].type)) for name in columns])
        """Of the structs of `structs`."""

    def structs(self, keys: Sequence[pa.Array], rows: pa.Array) -> pa.StructArray:
        """The selected columns of many rows. `keys`: an array for each primary-key column; `rows`: row bytes of visible
        rows, aligned with them; null becomes null.
        """
        values = dict(zip(self._values, self._rows.decode_batch(rows, self._values), strict=True))
        children = [values[name] if name in values else keys[self._key_at[name]] for name in self.columns]
        mask = rows.is_null() if rows.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=mask)


def _row_maker(
    decode: Callable[[bytes], JsonRow | None], keys: list[tuple[str, int, Callable[[Any], Any]]]
) -> Callable[[KeyValues, bytes], JsonRow | None]:
    """Fills the key columns into what `decode` gives."""

    def row_of(key: KeyValues, row: bytes) -> JsonRow | None:
        answer = decode(row)
        if answer is not None:
            for name, position, to_json in keys:
                answer[name] = to_json(key[position])
        return answer

    if len(keys) != 1 or keys[0][2] is not as_is:
        return row_of
    [(name, position, _)] = keys

    def row_of_plain_key(key: KeyValues, row: bytes) -> JsonRow | None:
        answer = decode(row)
        if answer is not None:
            answer[name] = key[position]
        return answer

    return row_of_plain_key
