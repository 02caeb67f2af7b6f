"""Arrow messages between client and server: keys one way, rows the other. docs/http.md#arrow is the contract.

    request     a stream of record batches: the key columns, by name
    lookup      row: struct of the selected columns, or binary (stored row bytes)          null: no such row
    insert      the same, and inserted: bool
    prefix      prefix: int32 (the row of the request), row: struct

What travels with an answer besides its rows is in the metadata of its schema: the snapshot, the token of the next page.

A body from elsewhere is not trusted: it must be whole, its offsets and texts are checked before anything follows them,
and what it says to expand to is bounded before it is expanded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from stelae.errors import InvalidRequest, TooLarge
from stelae.wire.ipc_messages import expanded_bytes

ROW, INSERTED, PREFIX = "row", "inserted", "prefix"
SNAPSHOT, NEXT_PAGE_TOKEN = b"stelae.snapshot", b"stelae.next_page_token"
"""Keys of a schema's metadata."""

END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""The mark at the end of a stream. Arrow lets it be left out; but then a stream cut between two batches looks whole."""


def write_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> pa.Buffer:
    """A stream of record batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


def read_stream(body: bytes | pa.Buffer, most_bytes: int | None = None) -> pa.Table:
    """The table in a stream, as it came: nothing in it is checked.

    InvalidRequest when it is no stream, or not a whole one. TooLarge when its buffers are compressed and say that they
    expand to more than `most_bytes`.
    """
    buffer = body if isinstance(body, pa.Buffer) else pa.py_buffer(body)
    if buffer.size < len(END) or buffer.slice(buffer.size - len(END)).to_pybytes() != END:
        raise InvalidRequest(
            f"the body is not a whole Arrow stream: {buffer.size:,} bytes without the mark of its end",
            place="body",
            hint="close the stream's writer before you send what it wrote",
        )
    try:
        if most_bytes is not None and (size := expanded_bytes(buffer, most_bytes)) > most_bytes:
            raise TooLarge(
                f"the body expands to {size:,} bytes, at most {most_bytes:,} are taken",
                place="body",
                hint="send several requests, or raise --max-body-bytes",
            )
        source = pa.BufferReader(buffer)
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        left = buffer.size - source.tell()
    except (pa.ArrowException, OSError, EOFError) as exc:
        raise InvalidRequest(
            f"the body can't be read as an Arrow stream: {exc}",
            place="body",
            hint="an IPC stream, as pyarrow.ipc.new_stream writes it; not a file (Feather), not Parquet",
        ) from exc
    if left:
        raise InvalidRequest(f"{left:,} bytes follow the end of the Arrow stream", place="body")
    return table


def read_keys(body: bytes, most_bytes: int) -> dict[str, pa.Array]:
    """The columns of a request, each as one array that is safe to follow. Types are as they came.

    TooLarge when dictionaries, views or compression stand for more than `most_bytes`.
    """
    table = read_stream(body, most_bytes)
    try:
        names = table.column_names
    except UnicodeDecodeError as exc:
        raise InvalidRequest("the name of a column is not UTF-8", place="body") from exc
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"column {twice!r} is there twice", place=twice)
    return {name: _checked(name, table.column(index), most_bytes) for index, name in enumerate(names)}


def _checked(name: str, column: pa.ChunkedArray, most_bytes: int) -> pa.Array:
    try:
        column.validate(full=True)
    except (pa.ArrowException, OSError) as exc:
        raise InvalidRequest(f"column {name!r} is malformed: {exc}", place=name) from exc
    if _shares_values(column.type):
        try:
            # `binary_length` has no form for views: they are asked through what they become.
            size = sum(_unshared_bytes(chunk) for chunk in column.chunks)
        except pa.ArrowException as exc:
            raise InvalidRequest(f"column {name!r} can't be read: {exc}", place=name) from exc
        if size > most_bytes:
            raise TooLarge(
                f"the values of column {name!r} come to {size:,} bytes, at most {most_bytes:,} are taken",
                place=name,
                hint="send several requests, or raise --max-body-bytes",
            )
    try:
        return one_array(column)
    except pa.ArrowException as exc:
        raise InvalidRequest(f"column {name!r} can't be read: {exc}", place=name) from exc


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """Chunks in one piece."""
    if column.num_chunks == 1:
        return column.chunk(0)
    array = column.combine_chunks()
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _shares_values(arrow: pa.DataType) -> bool:
    """Whether many cells may stand for one stored value."""
    types = pa.types
    return bool(types.is_dictionary(arrow) or types.is_string_view(arrow) or types.is_binary_view(arrow))


def _unshared_bytes(array: pa.Array) -> int:
    """Bytes of all values, each as often as it is there."""
    if isinstance(array, pa.DictionaryArray):
        values = array.dictionary
        if not len(values):
            return 0
        if _shares_values(values.type) or not _has_lengths(values.type):
            return len(array) * int(values.nbytes)  # at most
        return int(pc.sum(pc.binary_length(values).take(array.indices)).as_py() or 0)
    # A view is 16 bytes: the length of its value first.
    views = array.buffers()[1]
    if views is None:
        return 0
    lengths = struct.iter_unpack("<i12x", views.slice(array.offset * 16, len(array) * 16))
    return sum(length for (length,) in lengths)


def _has_lengths(arrow: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_string(arrow) or types.is_large_string(arrow) or types.is_binary(arrow) or types.is_large_binary(arrow)
    )


# Answers


@dataclass(frozen=True, slots=True)
class RowsAnswer:
    """An answer, as a client reads it."""

    rows: pa.ChunkedArray
    """`row`: struct or binary."""
    inserted: pa.ChunkedArray | None
    prefixes: pa.ChunkedArray | None
    """Of a prefix lookup: to which row of the request each belongs."""
    snapshot: int
    next_page_token: str | None


def rows_schema(
    row: pa.DataType, snapshot: int, *, inserted: bool = False, prefix: bool = False, token: str | None = None
) -> pa.Schema:
    """The schema of an answer."""
    fields = [pa.field(PREFIX, pa.int32(), nullable=False)] if prefix else []
    fields.append(pa.field(ROW, row))
    if inserted:
        fields.append(pa.field(INSERTED, pa.bool_(), nullable=False))
    metadata = {SNAPSHOT: b"%d" % snapshot}
    if token is not None:
        metadata[NEXT_PAGE_TOKEN] = token.encode()
    return pa.schema(fields, metadata)


def read_rows(body: bytes | pa.Buffer) -> RowsAnswer:
    """An answer of a server. InvalidRequest, KeyError or ValueError when it is none."""
    table = read_stream(body)
    metadata: Mapping[bytes, bytes] = table.schema.metadata or {}
    token = metadata.get(NEXT_PAGE_TOKEN)
    names: Sequence[str] = table.column_names
    return RowsAnswer(
        table.column(ROW),
        table.column(INSERTED) if INSERTED in names else None,
        table.column(PREFIX) if PREFIX in names else None,
        int(metadata[SNAPSHOT]),
        None if token is None else token.decode(),
    )
