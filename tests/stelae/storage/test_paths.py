"""Goal: every name is made and read back without loss, and no value escapes its folder.

Method: a table of names as they are on disk; properties over any text; near misses that must not parse.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.errors import InvalidRequest
from stelae.names import TableName
from stelae.storage import paths

UUID = "0123456789abcdef0123456789abcdef"
DASHED = "01234567-89ab-cdef-0123-456789abcdef"

FOLDERS = [
    ((), (), ""),
    (("dt",), ("2026-11-20",), "dt=2026-11-20"),
    (("dt", "country"), ("2026-11-20", "de"), "dt=2026-11-20/country=de"),
    (("a",), ("",), "a="),
    (("a",), (".",), "a=."),
    (("a",), ("..",), "a=.."),
    (("a",), ("/",), "a=%2F"),
    (("a",), ("../../x",), "a=..%2F..%2Fx"),
    (("a",), ("x=y",), "a=x%3Dy"),
    (("a",), ("100%",), "a=100%25"),
    (("a",), ("12:30 +1",), "a=12%3A30%20%2B1"),
    (("a",), ("é😀",), "a=%C3%A9%F0%9F%98%80"),
    (("a",), ("\n\0\\",), "a=%0A%00%5C"),
    (("a=b",), ("c",), "a%3Db=c"),
    ((".a",), ("c",), "%2Ea=c"),
    (("ü/",), ("c",), "%C3%BC%2F=c"),
    (("i", "b", "f"), (-5, True, 0.5), "i=-5/b=true/f=0.5"),
    (("f", "g"), (1e300, 1.0), "f=1e%2B300/g=1.0"),
]
"""Columns, values, folder on disk. Changing one is a format decision."""

NAMES = st.text(min_size=1, max_size=8)
PARTITIONS = st.lists(st.tuples(NAMES, st.text(max_size=8)), max_size=4)


@pytest.mark.parametrize(("columns", "values", "folder"), FOLDERS)
def test_partition_folder(columns: tuple[str, ...], values: tuple[paths.PartitionValue, ...], folder: str) -> None:
    assert paths.partition_folder(columns, values) == folder
    texts = tuple(map(paths.partition_text, values))
    assert paths.parse_partition_folder(folder) == tuple(zip(columns, texts, strict=True))


@given(PARTITIONS)
def test_any_partition_is_read_back(parts: list[tuple[str, str]]) -> None:
    folder = paths.partition_folder([column for column, _ in parts], [value for _, value in parts])
    assert paths.parse_partition_folder(folder) == tuple(parts)
    assert folder.isascii()
    assert len(folder.split("/")) == max(len(parts), 1)
    assert not any(part.startswith(".") for part in folder.split("/"))


@given(st.text(alphabet="ab=/%2EF.é", max_size=12))
def test_what_parses_is_what_would_be_made(folder: str) -> None:
    parts = paths.parse_partition_folder(folder)
    if parts is not None:
        assert paths.partition_folder([column for column, _ in parts], [value for _, value in parts]) == folder


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()), st.data())
def test_values_of_one_type_never_share_a_folder(value: paths.PartitionValue, data: st.DataObject) -> None:
    other = data.draw(st.from_type(type(value)).filter(lambda other: other == other and repr(other) != repr(value)))
    assert paths.partition_folder(["a"], [value]) != paths.partition_folder(["a"], [other])


@given(PARTITIONS, st.integers(0, 10**6), st.uuids().map(lambda uuid: uuid.hex))
def test_sst_path(parts: list[tuple[str, str]], bucket: int, uuid: str) -> None:
    folder = paths.partition_folder([column for column, _ in parts], [value for _, value in parts])
    path = paths.sst_path(folder, bucket, uuid)
    assert paths.parse_sst_path(path) == (folder, bucket, uuid)
    assert path.startswith(paths.bucket_folder(folder, bucket) + "/")


def test_names_on_disk() -> None:
    assert paths.table_folder(TableName("shop", "users")) == "shop.db/users"
    assert paths.schema_path(0) == "schema/schema-0.json"
    assert paths.snapshot_path(17) == "snapshot/snapshot-17.json"
    assert paths.floor_path(12) == "snapshot/floor-12.json"
    assert paths.claim_path(12) == "auto-increment/claim-000000000012.json"
    assert paths.epoch_path(7) == "owner/epoch-000007.json"
    assert paths.segment_name(2, 17) == "segment-000000000002-00000000000000000017.log"
    assert paths.sst_path("", 3, UUID) == f"bucket-3/sst-{UUID}.sst"
    assert paths.sst_path("dt=2026-11-20", 3, DASHED) == f"dt=2026-11-20/bucket-3/sst-{DASHED}.sst"


@given(st.integers(0, 2**63 - 1))
def test_numbers_are_read_back(number: int) -> None:
    assert paths.parse_schema_path(paths.schema_path(number)) == number
    assert paths.parse_snapshot_path(paths.snapshot_path(number)) == number
    assert paths.parse_floor_path(paths.floor_path(number)) == number
    assert paths.parse_claim_path(paths.claim_path(number)) == number
    assert paths.parse_epoch_path(paths.epoch_path(number)) == number


@given(st.integers(1, 10**12 - 1), st.integers(0, 2**63 - 1))
def test_segment_names_are_read_back_and_sort(epoch: int, base: int) -> None:
    name = paths.segment_name(epoch, base)
    assert paths.parse_segment_name(name) == (epoch, base)
    assert paths.segment_name(1, 99) < name or (epoch, base) <= (1, 99)


@pytest.mark.parametrize(
    "name", ["segment-1-0.log", f"segment-{'0' * 12}-{'0' * 20}.log", f"segment-{1:012d}-{0:020d}.log.tmp"]
)
def test_not_a_segment_name(name: str) -> None:
    assert paths.parse_segment_name(name) is None


@pytest.mark.parametrize("number", [0, 10**6 - 1, 10**6, 10**12 - 1, 10**12, 10**18])
def test_padded_numbers_outgrow_their_padding(number: int) -> None:
    assert paths.parse_claim_path(paths.claim_path(number)) == number
    assert paths.parse_epoch_path(paths.epoch_path(number)) == number


@pytest.mark.parametrize(
    "path",
    [
        "auto-increment/claim-12.json",
        "auto-increment/claim-0000000000012.json",
        "auto-increment/claim--00000000012.json",
        "auto-increment/claim-000000000012.json\n",
        "auto-increment/x/claim-000000000012.json",
        "claim-000000000012.json",
        "owner/epoch-7.json",
        "owner/epoch-0000007.json",
        "owner/epoch-00000٧.json",
        "owner/claim-000007.json",
        "epoch-000007.json",
    ],
)
def test_not_a_claim_and_not_an_epoch(path: str) -> None:
    assert paths.parse_claim_path(path) is None
    assert paths.parse_epoch_path(path) is None


@pytest.mark.parametrize("name", [TableName("shop", "users"), TableName("default", "a-b_c"), TableName("0", "db")])
def test_table_folder(name: TableName) -> None:
    assert paths.parse_table_folder(paths.table_folder(name)) == name


@pytest.mark.parametrize(
    "folder",
    ["", "shop", "shop.db", "shop.db/", ".db/users", "shop/users", "shop.db/users/x", "shop.db/.users", "a.db/é"],
)
def test_not_a_table_folder(folder: str) -> None:
    assert paths.parse_table_folder(folder) is None


@pytest.mark.parametrize(
    "path",
    [
        "snapshot/snapshot-01.json",
        "snapshot/snapshot-+1.json",
        "snapshot/snapshot--1.json",
        "snapshot/snapshot-.json",
        "snapshot/snapshot-1.json.tmp",
        "snapshot/snapshot-1.json\n",
        "snapshot/snapshot-١.json",
        "snapshot/x/snapshot-1.json",
        "snapshot-1.json",
        "schema/snapshot-1.json",
        "snapshot/floor-1.json",
        f"snapshot/snapshot-{10**19}.json",
    ],
)
def test_not_a_snapshot_path(path: str) -> None:
    assert paths.parse_snapshot_path(path) is None


@pytest.mark.parametrize(
    "path",
    [
        f"/bucket-0/sst-{UUID}.sst",
        f"../bucket-0/sst-{UUID}.sst",
        f"dt/bucket-0/sst-{UUID}.sst",
        f"dt=a//bucket-0/sst-{UUID}.sst",
        f"dt=a/../bucket-0/sst-{UUID}.sst",
        f"bucket-00/sst-{UUID}.sst",
        f"bucket-0/sst-{UUID.upper()}.sst",
        f"bucket-0/sst-{UUID}.sst.tmp",
        f"bucket-0/{UUID}.sst",
        f"bucket-0/sst-{DASHED[:18]}{DASHED[19:]}.sst",
        f"dt=%2f/bucket-0/sst-{UUID}.sst",
        f"dt=%C3/bucket-0/sst-{UUID}.sst",
        f"dt=é/bucket-0/sst-{UUID}.sst",
        "bucket-0/sst-.sst",
        "",
    ],
)
def test_not_an_sst_path(path: str) -> None:
    assert paths.parse_sst_path(path) is None


def test_what_cannot_be_a_name() -> None:
    for call in (
        lambda: paths.partition_folder(["a"], ["x" * 300]),
        lambda: paths.partition_folder(["a"], ["é" * 60]),
        lambda: paths.partition_folder(["a"], ["\ud800"]),
        lambda: paths.partition_folder([""], ["a"]),
        lambda: paths.sst_path("", 0, "x"),
        lambda: paths.sst_path("", -1, UUID),
        lambda: paths.snapshot_path(-1),
    ):
        with pytest.raises(InvalidRequest):
            call()
    with pytest.raises(ValueError, match="zip"):
        paths.partition_folder(["a", "b"], ["x"])
