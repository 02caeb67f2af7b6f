"""What the messages of an Arrow stream say of themselves, before anything in them is decoded.

    message     metadata: a flatbuffer, which Arrow has verified before it is looked into here      body: buffers
    buffer      compressed: 8 bytes that say what it expands to, then its data

pyarrow expands compressed buffers while it reads a batch, and has no limit for that: 1 KB may ask for all memory. It
does not tell of a message whether it is compressed either, so that is read here.
https://arrow.apache.org/docs/format/Columnar.html#ipc-message-format and format/Message.fbs of apache/arrow.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_DICTIONARY_BATCH = 2
"""`MessageHeader` of Message.fbs."""


def expanded_bytes(stream: pa.Buffer, most_bytes: int) -> int:
    """What the compressed buffers of a stream say that they expand to, counted until it is more than `most_bytes`."""
    total = 0
    for message in pa.ipc.MessageReader.open_stream(stream):
        if message.type in ("record batch", "dictionary"):
            total += _expanded_bytes(message)
        if total > most_bytes:
            break
    return total


def _expanded_bytes(message: pa.ipc.Message) -> int:
    """That of one message; 0 if it is not compressed."""
    data = message.metadata.to_pybytes()
    root = _FlatbufferTable(data, struct.unpack_from("<I", data)[0])
    kind, header = root.number("<B", 1), root.table(2)
    if header is not None and kind == _DICTIONARY_BATCH:
        header = header.table(1)
    if header is None or header.table(3) is None or message.body is None:
        return 0
    body = memoryview(message.body)
    total = 0
    for offset, length in header.pairs(2):
        if length >= 8 and 0 <= offset <= len(body) - 8:
            total += max(length - 8, struct.unpack_from("<q", body, offset)[0])  # -1: this one is as it is
    return total


class _FlatbufferTable:
    """A table of a flatbuffer: its fields, by number."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._offsets = at - struct.unpack_from("<i", data, at)[0]
        """Of the table's own list of where its fields are."""

    def _field_at(self, field: int) -> int | None:
        size = struct.unpack_from("<H", self._data, self._offsets)[0]
        entry = 4 + 2 * field
        if entry + 2 > size:
            return None
        offset = struct.unpack_from("<H", self._data, self._offsets + entry)[0]
        return self._at + offset if offset else None

    def number(self, form: str, field: int) -> int:
        at = self._field_at(field)
        return 0 if at is None else int(struct.unpack_from(form, self._data, at)[0])

    def table(self, field: int) -> _FlatbufferTable | None:
        at = self._field_at(field)
        if at is None:
            return None
        return _FlatbufferTable(self._data, at + struct.unpack_from("<I", self._data, at)[0])

    def pairs(self, field: int) -> list[tuple[int, int]]:
        """A vector of structs of two 64-bit integers."""
        at = self._field_at(field)
        if at is None:
            return []
        at += struct.unpack_from("<I", self._data, at)[0]
        count = struct.unpack_from("<I", self._data, at)[0]
        return [struct.unpack_from("<qq", self._data, at + 4 + 16 * index) for index in range(count)]
