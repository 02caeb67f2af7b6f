"""Goal: what a stream would expand to is known before it is expanded.

Method: streams that pyarrow wrote, compressed and not, against the size of the buffers that it reads from them; what a
server makes of them is in tests/service/http/test_arrow.py.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from stelae.errors import TooLarge
from stelae.wire.arrow_stream import read_stream
from stelae.wire.ipc_messages import expanded_bytes

TABLE = pa.table(
    {
        "id": pa.array(range(20_000), pa.int64()),
        "text": pa.array(["some text"] * 20_000),
        "word": pa.array(["a" * 5_000, "b" * 5_000] * 10_000).dictionary_encode(),
    }
)


def stream(compression: str | None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, TABLE.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(TABLE, max_chunksize=7_000)
    return sink.getvalue()


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_compressed_buffers_say_what_they_expand_to(compression: str) -> None:
    compressed = stream(compression)
    size = expanded_bytes(compressed, 1 << 40)
    # Slices share the dictionary; padding and offsets of each slice come on top.
    assert TABLE.nbytes <= size <= 1.01 * TABLE.nbytes + 1_000
    assert compressed.size < size
    assert read_stream(compressed, size).equals(TABLE)
    with pytest.raises(TooLarge, match="expands to"):
        read_stream(compressed, size - 1)


def test_counting_ends_where_it_is_too_much() -> None:
    assert 1_000 < expanded_bytes(stream("lz4"), 1_000) < TABLE.nbytes / 2


def test_what_is_not_compressed_does_not_expand() -> None:
    assert expanded_bytes(stream(None), 0) == 0
    assert read_stream(stream(None), 1).equals(TABLE)
