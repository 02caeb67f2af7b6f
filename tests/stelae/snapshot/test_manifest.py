"""Goal: a manifest that is read is the one that was written, and nothing else is ever taken for one.

Method: golden bytes; round trips of random snapshots; every single byte of a small one changed; every field missing,
extra or of another type, resealed with a right checksum so that the strict reading is what refuses; each invariant
broken once, in writing and in reading.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import uuid4

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.errors import CorruptData
from stelae.snapshot.manifest import BucketFiles, DataFile, PartitionFiles, Snapshot, Totals
from stelae.snapshot.manifest_json import decode_snapshot, encode_snapshot
from stelae.storage.checksum import checksum
from stelae.storage.paths import partition_folder, sst_path
from stelae.storage.sealed_json import open_sealed_json, seal_json

UUID = "0123456789abcdef0123456789abcde"


def data_file(folder: str = "", bucket: int = 0, number: int = 0, **changes: Any) -> DataFile:
    file = DataFile(
        path=sst_path(folder, bucket, f"{UUID}{number:x}"),
        bytes=1234,
        checksum=checksum(b"x"),
        rows=10,
        hidden_rows=1,
        first_key=b"\x80\x01",
        last_key=b"\x80\x09",
    )
    return replace(file, **changes)


def snapshot(**changes: Any) -> Snapshot:
    """Two partitions of one and two buckets; one bucket without files, one with two runs."""
    first, second = "dt=2026-11-20/n=1", "dt=2026-11-21/n=2"
    whole = Snapshot(
        table="shop.users",
        id=17,
        parent=16,
        schema_id=0,
        build_id="build-1",
        kind="merge",
        created_ms=1_795_000_000_000,
        versions={"stelae": "0.1.0", "spark": "4.3.0"},
        partitions=(
            PartitionFiles(("2026-11-20", 1), 1, (BucketFiles(0, (data_file(first),), log_offset=5),), first),
            PartitionFiles(
                ("2026-11-21", 2),
                2,
                (BucketFiles(0, ()), BucketFiles(1, (data_file(second, 1, 1), data_file(second, 1, 2)))),
                second,
            ),
        ),
    )
    return replace(whole, **changes)


GOLDEN = b"""{
  "format": 1,
  "table": "shop.users",
  "id": 1,
  "parent": null,
  "schema_id": 0,
  "build_id": "b",
  "kind": "overwrite",
  "created_ms": 7,
  "versions": {
    "stelae": "0.1.0"
  },
  "properties": {},
  "totals": {
    "rows": 10,
    "hidden_rows": 1,
    "files": 1,
    "bytes": 1234
  },
  "partitions": [
    {
      "values": [],
      "folder": "",
      "bucket_count": 1,
      "buckets": [
        {
          "bucket": 0,
          "log_offset": 0,
          "files": [
            {
              "path": "bucket-0/sst-0123456789abcdef0123456789abcde0.sst",
              "bytes": 1234,
              "checksum": "xxh3-128:5c7401c0ec22eeeeeaf06c6480b2cd11",
              "rows": 10,
              "hidden_rows": 1,
              "first_key": "8001",
              "last_key": "8009"
            }
          ]
        }
      ]
    }
  ],
  "checksum": "xxh3-128:427b66cf698c4b62bcf38987d7a1edcb"
}
"""
SMALL = Snapshot(
    table="shop.users",
    id=1,
    parent=None,
    schema_id=0,
    build_id="b",
    kind="overwrite",
    created_ms=7,
    versions={"stelae": "0.1.0"},
    partitions=(PartitionFiles((), 1, (BucketFiles(0, (data_file(),)),)),),
)


def test_golden_bytes() -> None:
    assert encode_snapshot(SMALL) == GOLDEN
    assert decode_snapshot(GOLDEN, "here") == SMALL


def test_round_trip_and_totals() -> None:
    assert decode_snapshot(encode_snapshot(snapshot()), "here") == snapshot()
    assert snapshot().totals == Totals(rows=30, hidden_rows=3, files=3, bytes=3702)
    assert snapshot().partitions[0].totals == Totals(10, 1, 1, 1234)
    assert snapshot().partitions[1].buckets[0].totals == Totals(0, 0, 0, 0)
    assert snapshot().by_values[("2026-11-21", 2)].bucket_count == 2


def test_a_snapshot_without_rows() -> None:
    for partitions in ((), (PartitionFiles((), 2, (BucketFiles(0, ()), BucketFiles(1, ()))),)):
        empty = replace(SMALL, partitions=partitions)
        assert decode_snapshot(encode_snapshot(empty), "here") == empty


def _are_distinct(pair: tuple[bytes, bytes]) -> bool:
    return pair[0] != pair[1]


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    count = st.integers(0, 2**63 - 1)
    columns = draw(st.lists(st.text(min_size=1, max_size=3), max_size=2, unique=True))
    scalar = st.one_of(st.text(max_size=4), st.integers(-9, 9), st.booleans(), st.floats(allow_nan=False, width=32))
    scalar = scalar.filter(lambda value: not isinstance(value, float) or abs(value) != float("inf"))
    partitions: dict[str, PartitionFiles] = {}
    for _ in range(draw(st.integers(0, 3)) if columns else 1):
        values = tuple(draw(st.tuples(*(scalar for _ in columns))))
        folder = partition_folder(columns, values)
        buckets = []
        for bucket in range(draw(st.integers(1, 3))):
            files = []
            for _ in range(draw(st.integers(0, 2))):
                rows = draw(st.integers(1, 2**40))
                keys = sorted(draw(st.tuples(st.binary(max_size=4), st.binary(max_size=4)).filter(_are_distinct)))
                files.append(
                    DataFile(
                        path=sst_path(folder, bucket, uuid4().hex),
                        bytes=draw(st.integers(1, 2**40)),
                        checksum=checksum(b""),
                        rows=rows,
                        hidden_rows=draw(st.integers(0, rows)),
                        first_key=keys[0],
                        last_key=keys[rows > 1],
                    )
                )
            buckets.append(BucketFiles(bucket, tuple(files), draw(count)))
        partitions[folder] = PartitionFiles(values, len(buckets), tuple(buckets), folder)
    snapshot_id = draw(st.integers(1, 2**63 - 1))
    texts = st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2)
    return Snapshot(
        table=draw(st.text(min_size=1, max_size=3)),
        id=snapshot_id,
        parent=snapshot_id - 1 or None,
        schema_id=draw(count),
        build_id=draw(st.text(min_size=1, max_size=3)),
        kind=draw(st.sampled_from(["merge", "overwrite"])),
        created_ms=draw(count),
        versions=draw(texts),
        properties=draw(texts),
        partitions=tuple(partitions.values()),
    )


@given(snapshots())
@settings(max_examples=50)
def test_random_snapshots_are_read_back(made: Snapshot) -> None:
    assert decode_snapshot(encode_snapshot(made), "here") == made


def test_every_changed_byte_is_noticed() -> None:
    for position in range(len(GOLDEN)):
        for flip in (0x01, 0x20, 0x80):
            broken = bytearray(GOLDEN)
            broken[position] ^= flip
            with pytest.raises(CorruptData, match="here"):
                decode_snapshot(bytes(broken), "here")


def test_every_cut_is_noticed() -> None:
    for size in range(len(GOLDEN)):
        with pytest.raises(CorruptData):
            decode_snapshot(GOLDEN[:size], "here")
        with pytest.raises(CorruptData):
            decode_snapshot(GOLDEN[size + 1 :], "here")


# Strict reading


def objects(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all JSON objects with fixed fields."""
    found = [path] if isinstance(value, dict) and path[-1:] not in (("versions",), ("properties",)) else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        found += objects(item, (*path, name))
    return found


def at(body: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        body = body[name]
    return body


def body_of(made: Snapshot) -> Any:
    return open_sealed_json(encode_snapshot(made), "")


FIELDS = [(path, name) for path in objects(body_of(snapshot())) for name in at(body_of(snapshot()), path)]


@pytest.mark.parametrize(("path", "name"), FIELDS, ids=lambda part: str(part))
def test_a_field_that_is_missing_unknown_or_of_another_type(path: tuple[Any, ...], name: str) -> None:
    value = at(body_of(snapshot()), path)[name]
    others: list[Any] = [None, True, 1.0, -1, 2**63, 2**64, "", "x", [], [None], {}, {"x": 1}, [[]], "80 01", "8O"]
    if name in ("versions", "properties"):
        others.remove({})
    if name in ("table", "build_id"):
        others = [other for other in others if not isinstance(other, str) or not other]
    if name == "first_key":
        others.remove("")  # the key of an empty string
    for other in others:
        if other == value and type(other) is type(value):
            continue
        body = body_of(snapshot())
        at(body, path)[name] = other
        if name == "partitions" and other == []:
            body["totals"] = dict.fromkeys(body["totals"], 0)
            assert decode_snapshot(seal_json(body), "here").partitions == ()
            continue
        with pytest.raises(CorruptData, match="here"):
            decode_snapshot(_sealed(body), "here")
    for change in (lambda fields: fields.pop(name), lambda fields: fields.update(extra=1)):
        body = body_of(snapshot())
        change(at(body, path))
        with pytest.raises(CorruptData, match=r"lacks|unknown field|format"):
            decode_snapshot(_sealed(body), "here")


def test_errors_name_the_place() -> None:
    body = body_of(snapshot())
    body["partitions"][1]["buckets"][1]["files"][0]["rows"] = "7"
    with pytest.raises(CorruptData) as raised:
        decode_snapshot(seal_json(body), "shop.users/snapshot/snapshot-17.json")
    assert raised.value.place == "shop.users/snapshot/snapshot-17.json: partitions[1]: buckets[1]: files[0]"
    assert "field rows" in raised.value.message


def test_a_newer_format_is_named() -> None:
    with pytest.raises(CorruptData, match="format 2 is not known"):
        decode_snapshot(seal_json({"format": 2}), "here")


# Invariants: each broken once. (what, how, part of the message)


def with_file(**changes: Any) -> Snapshot:
    return replace(SMALL, partitions=(PartitionFiles((), 1, (BucketFiles(0, (data_file(**changes),)),)),))


def with_partitions(*partitions: PartitionFiles) -> Snapshot:
    return replace(SMALL, partitions=partitions)


def part(values: tuple[Any, ...], folder: str) -> PartitionFiles:
    return PartitionFiles(values, 1, (BucketFiles(0, ()),), folder)


TWICE = (data_file(), data_file())
BROKEN: list[tuple[str, Callable[[], Snapshot], str]] = [
    ("id 0", lambda: replace(SMALL, id=0), "ids start at 1"),
    ("a first snapshot with a parent", lambda: replace(SMALL, parent=0), "parent"),
    ("no parent", lambda: replace(SMALL, id=2), "parent None, expected 1"),
    ("a parent that is not the one before", lambda: snapshot(parent=15), "parent 15, expected 16"),
    ("a parent after it", lambda: snapshot(parent=18), "parent 18"),
    ("a first snapshot that goes back", lambda: replace(SMALL, kind="rollback"), "rollback"),
    ("an unknown kind", lambda: replace(SMALL, kind="append"), "kind"),
    ("no build", lambda: replace(SMALL, build_id=""), "empty"),
    ("no table", lambda: replace(SMALL, table=""), "empty"),
    ("a partition twice", lambda: with_partitions(part(("a",), "x=a"), part(("a",), "x=a")), "twice"),
    ("no partition beside one", lambda: with_partitions(part((), ""), part(("a",), "x=a")), "beside"),
    ("values that the folder does not say", lambda: with_partitions(part(("b",), "x=a")), "does not say"),
    ("values without a folder", lambda: with_partitions(part(("b",), "")), "does not say"),
    ("a folder without values", lambda: with_partitions(part((), "x=a")), "does not say"),
    ("a folder that leaves the table", lambda: with_partitions(part(("a",), "../x=a")), "not the folder"),
    ("a folder of another spelling", lambda: with_partitions(part(("a",), "x=%61")), "not the folder"),
    ("other columns", lambda: with_partitions(part(("a",), "x=a"), part(("b",), "y=b")), "differ"),
    ("a bucket missing", lambda: with_partitions(PartitionFiles((), 2, (BucketFiles(0, ()),))), "lists buckets"),
    ("a bucket too many", lambda: with_partitions(PartitionFiles((), 0, (BucketFiles(0, ()),))), "lists buckets"),
    ("no bucket", lambda: with_partitions(PartitionFiles((), 0, ())), "lists buckets"),
    (
        "buckets out of order",
        lambda: with_partitions(PartitionFiles((), 2, (BucketFiles(1, ()), BucketFiles(0, ())))),
        "lists buckets",
    ),
    ("a negative offset", lambda: with_partitions(PartitionFiles((), 1, (BucketFiles(0, (), -1),))), "offset"),
    ("a negative schema id", lambda: replace(SMALL, schema_id=-1), "negative"),
    ("a time before 1970", lambda: replace(SMALL, created_ms=-1), "negative"),
    ("an empty file", lambda: with_file(bytes=0), "0 bytes"),
    ("a file without rows", lambda: with_file(rows=0, hidden_rows=0), "0 rows"),
    ("negative rows", lambda: with_file(rows=-1), "-1 rows"),
    ("more hidden rows than rows", lambda: with_file(hidden_rows=11), "hides 11 of 10"),
    ("negative hidden rows", lambda: with_file(hidden_rows=-1), "hides -1"),
    ("keys in the wrong order", lambda: with_file(first_key=b"b", last_key=b"a"), "keys 62 to 61"),
    ("one key in ten rows", lambda: with_file(first_key=b"a", last_key=b"a"), "keys"),
    ("two keys in one row", lambda: with_file(rows=1, hidden_rows=0), "keys"),
    ("a file named twice", lambda: with_partitions(PartitionFiles((), 1, (BucketFiles(0, TWICE),))), "named twice"),
    ("a file of another bucket", lambda: with_file(path=data_file("", 1).path), "is not in bucket 0"),
    ("a file of another partition", lambda: with_file(path=data_file("x=a").path), "is not in bucket"),
    ("an absolute path", lambda: with_file(path="/" + data_file().path), "is not in bucket"),
    ("a path that leaves the table", lambda: with_file(path="../" + data_file().path), "is not in bucket"),
    ("another file", lambda: with_file(path="bucket-0/x.sst"), "is not in bucket"),
    ("an unknown checksum", lambda: with_file(checksum="md5:00"), "checksum"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_invariant_is_refused_before_writing(make: Callable[[], Snapshot], message: str) -> None:
    with pytest.raises(CorruptData, match=re.escape(message)):
        encode_snapshot(make())


@pytest.mark.parametrize(("make", "message"), [case[1:] for case in BROKEN], ids=[case[0] for case in BROKEN])
def test_a_broken_invariant_is_refused_after_reading(
    make: Callable[[], Snapshot], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written by a careless writer, with a right checksum."""
    with monkeypatch.context() as careless:
        careless.setattr("stelae.snapshot.manifest_json.check_snapshot", lambda *_: None)
        careless.setattr("stelae.snapshot.manifest_json.decode_snapshot", lambda *_: made)
        made = make()
        data = encode_snapshot(made)
    with pytest.raises(CorruptData):
        decode_snapshot(data, "here")


@pytest.mark.parametrize("name", ["rows", "hidden_rows", "files", "bytes"])
def test_totals_that_do_not_add_up(name: str) -> None:
    body = body_of(SMALL)
    body["totals"][name] += 1
    with pytest.raises(CorruptData, match="add up"):
        decode_snapshot(seal_json(body), "here")


def test_a_value_of_another_type_is_refused_before_writing() -> None:
    with pytest.raises(CorruptData, match="read back"):
        encode_snapshot(replace(SMALL, partitions=list(SMALL.partitions)))
    with pytest.raises(CorruptData):
        encode_snapshot(with_file(bytes=1234.0))


def _sealed(body: Any) -> bytes:
    """Sealed as any writer could: also numbers above 64 bits, which orjson does not print."""
    try:
        return seal_json(body)
    except orjson.JSONEncodeError:
        data = seal_json(_without_big_numbers(body)).replace(b'"BIG"', str(2**64).encode())
        head = data[: data.rindex(b",\n")]
        return head + b',\n  "checksum": "' + checksum(head).encode() + b'"\n}\n'


def _without_big_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_big_numbers(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_big_numbers(item) for item in value]
    return "BIG" if type(value) is int and value >= 2**64 else value
