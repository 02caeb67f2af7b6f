"""Tables of other libraries as keys: what they are in Arrow, and rows back in the same kind.

    pyarrow Table, RecordBatch            pyarrow Table
    pandas DataFrame                      pandas DataFrame, with the index of the keys
    anything with __arrow_c_stream__      pyarrow Table        polars, DuckDB, ...

None of these libraries is imported before a caller brings its objects.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from stelae.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


class KeyTable:
    """Keys that came as a table."""

    def __init__(self, table: pa.Table, frame: Any = None) -> None:
        self.table = table
        self._frame = frame
        """The pandas DataFrame that it was."""

    def rows(self, table: pa.Table, *, aligned: bool = True, exact: tuple[str | None, ...] = ()) -> Any:
        """Rows in the kind of the keys. `aligned`: one a key. `exact` columns are never null."""
        if self._frame is None:
            return table
        import pyarrow as pa

        pd: Any = sys.modules["pandas"]
        # A missing row makes any column null, and pandas would make doubles of integers then.
        nullable = {
            pa.int8(): pd.Int8Dtype(), pa.int16(): pd.Int16Dtype(), pa.int32(): pd.Int32Dtype(),
            pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype(),
        }  # fmt: skip
        names = [name for name in exact if name is not None]
        frame = table.drop_columns(names).to_pandas(types_mapper=nullable.get)
        for name in names:
            frame.insert(table.column_names.index(name), name, table[name].to_numpy())
        if aligned:
            frame.index = self._frame.index
        return frame


def as_key_table(keys: Any) -> KeyTable | None:
    """Keys that are a table; None where they are something else: a list, an array, a series, ..."""
    pandas = sys.modules.get("pandas")
    if pandas is not None and isinstance(keys, pandas.DataFrame):
        import pyarrow as pa

        try:
            return KeyTable(pa.Table.from_pandas(keys, preserve_index=False), keys)
        except (pa.ArrowException, ValueError, TypeError) as exc:
            raise InvalidRequest(
                f"the DataFrame can't be read: {exc}", place="keys", hint="a column has values of one type"
            ) from exc
    pyarrow = sys.modules.get("pyarrow")
    if pyarrow is not None:
        if isinstance(keys, pyarrow.Table):
            return KeyTable(keys)
        if isinstance(keys, pyarrow.RecordBatch):
            return KeyTable(pyarrow.Table.from_batches([keys]))
    # Series and arrays have a stream as well, but not of columns with names.
    if hasattr(keys, "__arrow_c_stream__") and (hasattr(keys, "columns") or hasattr(keys, "read_all")):
        import pyarrow as pa

        try:
            return KeyTable(pa.RecordBatchReader.from_stream(keys).read_all())
        except (pa.ArrowException, ValueError, TypeError) as exc:
            raise InvalidRequest(f"the keys can't be read as an Arrow table: {exc}", place="keys") from exc
    return None
