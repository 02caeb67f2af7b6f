"""Goal: a reader with online rows answers as a dict would: rows that the snapshot shows, then those of the log.

Method: random tables (partitions with bucket counts of their own, several sorted runs, tombstones) and random logs,
written by owners who had other bucket counts, against a dict; every type of key; then the odd cases, one by one.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stelae.encoding.rows import RowCodec
from stelae.encoding.values import value_codec
from stelae.errors import CorruptData, InvalidRequest, Unavailable
from stelae.log import replay as online
from stelae.log.reader import Entry, LogState, read_log
from stelae.log.records import Granted, Inserted, Record, Skipped
from stelae.log.replay import replay
from stelae.log.writer import LogWriter
from stelae.read.open_snapshot import open_snapshot
from stelae.read.overlay import OverlaidTablet
from stelae.read.snapshot_reader import SnapshotReader
from stelae.read.table_reader import TableReader
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.schema.table_schema import TableSchema
from stelae.snapshot.warehouse import Table, Warehouse
from tests.length import length
from tests.stelae.encoding.physical import KEY_TYPES, random_values
from tests.stelae.read.readers import (
    EVENTS,
    KEY,
    NULLABLE_EVENTS,
    Model,
    keys,
    nullable_keys,
    open_reader,
    prefixes,
    read_pages,
)
from tests.tables import commit_rows

SQL = "CREATE TABLE t (a INT, v STRING, PRIMARY KEY (a) NOT ENFORCED)"


def overlaid(reader: SnapshotReader, folder: Path) -> SnapshotReader:
    """The reader with online rows, none yet."""
    return reader.with_online(OnlineRows.open(folder))


def entries(records: Iterable[Record]) -> Iterator[Entry]:
    return (Entry(offset, 1, 0, record) for offset, record in enumerate(records))


def inserted(schema: TableSchema, rows: Sequence[Mapping[str, Any]], buckets: int = 3) -> list[Inserted]:
    """Records of these rows, one a partition and bucket, as an owner with so many buckets writes them."""
    read = TableReader(schema, {schema.id: schema})
    groups: dict[tuple[tuple[Any, ...], int], tuple[list[bytes], list[bytes]]] = {}
    for row in rows:
        values = {c.name: value_codec(c).from_python(row.get(c.name), c.name) for c in schema.columns}
        key = tuple(values[name] for name in schema.primary_key)
        partition = tuple(value_codec(c).to_json(values[c.name]) for c in schema.partition_columns)
        bucket = read.buckets.bucket(read.bucketed_of(key), buckets)
        key_bytes, row_bytes = groups.setdefault((partition, bucket), ([], []))
        key_bytes.append(read.keys.encode(read.key_of(key)))
        row_bytes.append(RowCodec(schema).encode([values[c.name] for c in schema.value_columns]))
    return [
        Inserted(schema.id, partition, bucket, key_bytes, row_bytes, len(key_bytes))
        for (partition, bucket), (key_bytes, row_bytes) in groups.items()
    ]


@dataclass
class Story:
    """What the snapshot holds (None: hidden), what the log brings, what comes between two pages, what is asked."""

    sql: str
    runs: list[dict[tuple[Any, ...], int | None]]
    log: list[dict[tuple[Any, ...], int]]
    later: list[dict[tuple[Any, ...], int]]
    asked: list[tuple[Any, ...]]
    scans: list[tuple[tuple[str, ...], tuple[Any, ...], int]]


def stories(sql: str, keys: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[Story]:
    batches = st.lists(st.dictionaries(keys, st.integers(100, 999), max_size=20), max_size=4)
    return st.builds(
        Story,
        st.just(sql),
        st.lists(st.dictionaries(keys, st.none() | st.integers(0, 9), max_size=30), min_size=1, max_size=2),
        batches,
        batches,
        st.lists(keys, max_size=20),
        st.lists(st.tuples(prefixes, keys, st.integers(1, 20)), min_size=2, max_size=4),
    )


def as_row(key: tuple[Any, ...], v: int | None) -> dict[str, Any]:
    return dict(zip((*KEY, "v"), (*key, v), strict=True))


@pytest.mark.long
@settings(max_examples=length(short=40, long=600))
@given(
    story=stories(EVENTS, keys) | stories(NULLABLE_EVENTS, nullable_keys),
    buckets=st.fixed_dictionaries({(day,): st.integers(1, 4) for day in (9, 10, 11)}),
    owners_buckets=st.integers(1, 5),
    chunk_keys=st.sampled_from([1, 7, 4096]),
)
def test_a_reader_with_online_rows_is_a_dict(
    story: Story, buckets: dict[tuple[int], int], owners_buckets: int, chunk_keys: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(online, "REPLAY_CHUNK_KEYS", chunk_keys)
        table = Warehouse(Path(folder) / "w").create_table(story.sql)
        stored: dict[tuple[Any, ...], int | None] = {}
        snapshot = None
        for run in story.runs:
            stored.update(run)
            snapshot = commit_rows(
                table,
                [as_row(key, v) for key, v in run.items() if v is not None],
                hidden=[dict(zip(KEY, key, strict=True)) for key, v in run.items() if v is None],
                onto=snapshot,
                buckets=buckets,
            )
        plain = open_reader(table, Path(folder) / "tablets")
        days = {key[KEY.index("day")] for key in stored}
        shown = {key: v for key, v in stored.items() if v is not None}
        reader = overlaid(plain, Path(folder) / "online")
        model = Model(dict(shown))

        def write(batch: dict[tuple[Any, ...], int]) -> int:
            rows = [as_row(key, v) for key, v in batch.items()]
            records: list[Record] = [Granted(1, 2, 3), *inserted(table.schema, rows, owners_buckets), Skipped(7)]
            put = {key: v for key, v in batch.items() if key not in shown and key[KEY.index("day")] in days}
            model.rows.update(put)
            assert replay(reader, entries(records)) == len(put)
            return len(put)

        count = sum(map(write, story.log))
        assert reader.online is not None
        assert len(reader.online) == count
        wanted = [*story.asked, *stored, *(key for batch in story.log for key in batch)]
        check_keys(reader, wanted, model.rows)
        check_keys(plain, wanted, shown)
        read = reader.table
        for names, key, limit in story.scans:
            values = {name: as_row(key, 0)[name] for name in names}
            prefix = read.prefix_from_json(values)
            assert reader.prefix_lookup(prefix, read.all_columns, 1000).rows == model.prefix(values)
            assert read_pages(reader, prefix, limit) == model.prefix(values)
            assert plain.prefix_lookup(prefix, read.all_columns, 1000).rows == Model(shown).prefix(values)

        check_pages_while_rows_come(reader, model, [lambda batch=batch: write(batch) for batch in story.later])


def check_keys(reader: SnapshotReader, wanted: Sequence[tuple[Any, ...]], rows: Mapping[tuple[Any, ...], Any]) -> None:
    """By key, by many keys, by located key."""
    read, projection = reader.table, reader.table.all_columns
    physical = [read.key_from_json(dict(zip(KEY, key, strict=True))) for key in wanted]
    expected = [as_row(key, rows[key]) if key in rows else None for key in wanted]
    in_order = [row and {name: row[name] for name in read.schema.column_names} for row in expected]
    assert [reader.lookup(key, projection) for key in physical] == in_order
    assert reader.lookup_many(physical, projection) == in_order
    located = reader.locate_many(physical)
    assert located == [reader.locate(key) for key in physical]
    known = {key: located_key for key, located_key in zip(physical, located, strict=True) if located_key is not None}
    for key, row in zip(known, reader.rows_at(list(known.values())), strict=True):
        found = None if row is None else projection.row(key, row)
        assert found == reader.lookup(key, projection)
        assert (row is None) == (found is None)  # never a hidden one
    for key, located_key in known.items():
        partition, bucket, key_bytes = reader.log_address(located_key)
        files = reader.snapshot.by_values[partition]
        assert partition == read.partition_of(key)  # INT: in JSON as it is
        assert bucket == read.buckets.bucket(read.bucketed_of(key), files.bucket_count)
        assert read.keys.decode(key_bytes) == read.key_of(key)


def check_pages_while_rows_come(reader: SnapshotReader, model: Model, steps: list[Any]) -> None:
    """Rows come between two pages: those before a page are not in it, all the others are."""
    steps = list(steps)
    token, seen = None, []
    at_first = model.prefix({})
    while True:
        page = reader.prefix_lookup({}, reader.table.all_columns, 5, token)
        seen += page.rows
        token = page.next_page_token
        if token is None:
            break
        if steps:
            steps.pop(0)()
    in_the_end = model.prefix({})
    by_key = {tuple(row[name] for name in KEY): row for row in in_the_end}
    seen_keys = [tuple(row[name] for name in KEY) for row in seen]
    assert seen_keys == [key for key in by_key if key in set(seen_keys)]  # in order, none twice
    assert {tuple(row[name] for name in KEY) for row in at_first} <= set(seen_keys)


@pytest.mark.parametrize("name", KEY_TYPES)
@pytest.mark.parametrize("role", ["key", "bucket key", "partition"])
def test_every_type_of_key_is_found_where_replay_put_it(tmp_path: Path, name: str, role: str) -> None:
    rng = random.Random(f"{name} {role}")
    columns, options = f"k {'TIME(6)' if name == 'TIME' else name}, n INT", "'bucket' = '3'"
    partitioned = ""
    if role == "bucket key":
        options += ", 'bucket-key' = 'k'"
    elif role == "partition":
        if name in ("FLOAT", "DOUBLE", "BYTES"):
            pytest.skip("no type of a partition column")
        partitioned = "PARTITIONED BY (k) "
    sql = f"CREATE TABLE t ({columns}, v INT, PRIMARY KEY (n, k) NOT ENFORCED) {partitioned}WITH ({options})"
    table = Warehouse(tmp_path / "w").create_table(sql)
    column = table.schema.by_name["k"]
    codec = value_codec(column)
    values = random_values(rng, column.type, 40)
    pairs = [(number, value) for number, value in enumerate(values)]
    python = [{"n": n, "k": codec.to_python(k), "v": n} for n, k in pairs]
    commit_rows(table, [], hidden=python[::2] if role == "partition" else [])
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    replay(reader, entries(inserted(table.schema, python)))
    projection = reader.table.projection(["v"])
    there = [reader.locate(pair) is not None for pair in pairs]
    assert any(there)
    for pair, expected in zip(pairs, there, strict=True):
        assert reader.lookup(pair, projection) == ({"v": pair[0]} if expected else None)
    assert reader.lookup_many(pairs, projection) == [reader.lookup(pair, projection) for pair in pairs]


def make(folder: Path, rows: Sequence[int] = (), hidden: Sequence[int] = (), sql: str = SQL) -> Table:
    table = Warehouse(folder / "w").create_table(sql)
    commit_rows(table, [{"a": a, "v": "snapshot"} for a in rows], hidden=[{"a": a} for a in hidden])
    return table


def from_log(numbers: Iterable[int], v: str = "log") -> list[dict[str, Any]]:
    return [{"a": a, "v": v} for a in numbers]


def values(reader: SnapshotReader, numbers: Iterable[int]) -> list[str | None]:
    rows = reader.lookup_many([(a,) for a in numbers], reader.table.projection(["v"]))
    return [row and row["v"] for row in rows]


def test_the_log_of_an_owner(tmp_path: Path) -> None:
    """From LogWriter to the reader: visible rows stay, hidden and absent ones get what the log says, last."""
    table = make(tmp_path, rows=range(10), hidden=range(10, 20))
    (tmp_path / "log").mkdir()
    writer = LogWriter(tmp_path / "log", 1, 0, LogState())
    for numbers, v in ((range(5, 25), "first"), (range(24, 30), "second")):
        writer.append([Granted(1, 1, 10), *inserted(table.schema, from_log(numbers, v))])
        writer.flush()
    writer.close()
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    assert replay(reader, read_log(tmp_path / "log")) == 21
    expected = ["snapshot"] * 10 + ["first"] * 14 + ["second"] * 6 + [None]
    assert values(reader, range(31)) == expected
    assert replay(reader, read_log(tmp_path / "log")) == 21  # and once more changes nothing
    assert values(reader, range(31)) == expected


def test_many_small_records_are_put_some_thousands_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(tmp_path)
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    puts = []
    put_many = OnlineRows.put_many
    monkeypatch.setattr(
        OnlineRows, "put_many", lambda self, keys, rows: (puts.append(len(keys)), put_many(self, keys, rows))
    )
    single = [
        replace(record, keys=[key], rows=[row], asked=1)
        for record in inserted(table.schema, from_log(range(20_000)))
        for key, row in zip(record.keys, record.rows, strict=True)
    ]
    assert replay(reader, entries(single)) == 20_000
    assert puts == [4096, 4096, 4096, 4096, 3616]
    puts.clear()
    replay(reader, entries(inserted(table.schema, from_log(range(20_000, 50_000)), buckets=1)))
    assert puts == [30_000, 0]  # a record is put as a whole
    assert values(reader, range(0, 50_001, 1000)) == ["log"] * 50 + [None]


def test_nothing_to_replay(tmp_path: Path) -> None:
    reader = overlaid(open_reader(make(tmp_path), tmp_path / "tablets"), tmp_path / "online")
    assert replay(reader, []) == 0
    assert replay(reader, entries([Granted(1, 1, 1), Skipped(9), Inserted(0, (), 0, [], [], 3)])) == 0
    with pytest.raises(InvalidRequest, match="no online rows"):
        replay(reader.with_online(None), [])


def test_replay_stops(tmp_path: Path) -> None:
    table = make(tmp_path)
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    stop = threading.Event()

    def endless() -> Iterator[Entry]:
        for a in itertools.count():
            if a == 100:
                stop.set()
            yield from entries(inserted(table.schema, from_log([a])))

    with pytest.raises(Unavailable, match="given up"):
        replay(reader, endless(), stop=stop)


def test_records_of_older_definitions(tmp_path: Path) -> None:
    table = make(tmp_path, rows=[1])
    warehouse = Warehouse(tmp_path / "w")
    older = inserted(table.schema, from_log(range(3)))
    warehouse.alter_table(f"ALTER TABLE {table.name} ADD w INT")
    altered = warehouse.table(table.name)
    newer = inserted(altered.schema, [{"a": a, "v": "new", "w": a} for a in range(2, 5)])
    reader = overlaid(open_reader(altered, tmp_path / "tablets"), tmp_path / "online")
    assert replay(reader, entries([*older, *newer])) == 5
    assert reader.lookup_many([(a,) for a in range(5)], reader.table.all_columns) == [
        {"a": 0, "v": "log", "w": None},
        {"a": 1, "v": "snapshot", "w": None},
        *({"a": a, "v": "new", "w": a} for a in range(2, 5)),
    ]
    before = overlaid(open_snapshot(table, table.snapshots.read(), tmp_path / "older"), tmp_path / "online-older")
    with pytest.raises(CorruptData, match="schema id 1, which is not known") as error:
        replay(before, entries([*older, *newer]))
    assert "newer" in str(error.value.hint)


@pytest.mark.parametrize("partition", [(), (1, 2), ("x",), (None,)])
def test_a_record_of_no_partition(tmp_path: Path, partition: tuple[Any, ...]) -> None:
    table = Warehouse(tmp_path / "w").create_table(EVENTS)
    commit_rows(table, [as_row(("x", 9, "", 0), 1)])
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    [record] = inserted(table.schema, [as_row(("x", 10, "", 0), 1)])
    assert replay(reader, entries([record])) == 0  # the snapshot lacks the day
    with pytest.raises(CorruptData, match="record 0 of the log"):
        replay(reader, entries([replace(record, partition=partition)]))


def test_keys_that_do_not_decode(tmp_path: Path) -> None:
    table = make(tmp_path)
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    with pytest.raises(CorruptData, match="key bytes"):
        replay(reader, entries([Inserted(0, (), 0, [b"x"], [b"row"], 1)]))


def test_readers_without_online_rows_ask_their_tablets(tmp_path: Path) -> None:
    """Nothing is wrapped around them: they are as fast as if there were no online rows."""
    plain = open_reader(make(tmp_path, rows=range(100)), tmp_path / "tablets")
    with_rows = overlaid(plain, tmp_path / "online")
    assert with_rows.partitions == plain.partitions
    assert (plain.online, with_rows.with_online(None).online) == (None, None)
    for reader in (plain, with_rows.with_online(None)):
        asked = [tablet for tablet, _, _ in reader._by_tablet([(a,) for a in range(100)])]
        assert {id(tablet) for tablet in asked} == {id(tablet) for tablet in plain.partitions[()].tablets}
    assert all(isinstance(tablet, OverlaidTablet) for tablet, _, _ in with_rows._by_tablet([(1,)]))


def test_places_are_those_of_the_reader_without(tmp_path: Path) -> None:
    """Whoever located keys in one may ask the other."""
    plain = open_reader(make(tmp_path, rows=range(10)), tmp_path / "tablets")
    reader = overlaid(plain, tmp_path / "online")
    located = [key or b"" for key in plain.locate_many([(a,) for a in range(20)])]
    assert reader.locate_many([(a,) for a in range(20)]) == located
    assert reader.online is not None
    reader.online.put_many(located[10:15], [b"row"] * 5)
    assert [row is not None for row in reader.rows_at(located)] == [True] * 10 + [False] * 0 + [True] * 5 + [False] * 5
    assert reader.snapshot_rows_at(located) == plain.rows_at(located)
    assert plain.rows_at(located)[10:] == [None] * 10
    assert reader.rows_at([]) == []


def test_a_visible_row_of_the_snapshot_counts_first(tmp_path: Path) -> None:
    """`replay` leaves such rows out; where one is put all the same, every way of reading agrees."""
    table = make(tmp_path, rows=range(4), hidden=range(4, 8))
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    numbers = range(9)
    located = [key or b"" for key in reader.locate_many([(a,) for a in numbers])]
    assert reader.online is not None
    reader.online.put_many(located, [RowCodec(table.schema).encode(("online",)) for _ in numbers])
    expected = ["snapshot"] * 4 + ["online"] * 5
    projection = reader.table.projection(["v"])
    assert [row and row["v"] for row in (reader.lookup((a,), projection) for a in numbers)] == expected
    assert values(reader, numbers) == expected
    assert [row["v"] for row in reader.prefix_lookup({}, projection, 99).rows] == expected
    assert [row and (projection.row((0,), row) or {})["v"] for row in reader.rows_at(located)] == expected


def test_online_rows_live_as_long_as_a_reader_or_a_scan(tmp_path: Path) -> None:
    table = make(tmp_path, rows=range(3))
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    replay(reader, entries(inserted(table.schema, from_log(range(3, 6)))))
    scan = reader.prefix_scan({}, reader.table.projection(["a"]), 10)
    first = scan.step(2)
    find = reader.find
    del reader
    assert sorted(row["a"] for row in first + scan.step(10)) == list(range(6))
    assert find((4,)) is not None
    assert (tmp_path / "online").exists()
    del find, scan
    assert not (tmp_path / "online").exists()


def test_a_snapshot_without_files(tmp_path: Path) -> None:
    """Its buckets have no tablets, and still take online rows."""
    table = make(tmp_path)
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    replay(reader, entries(inserted(table.schema, from_log(range(40)))))
    assert values(reader, range(41)) == ["log"] * 40 + [None]
    assert [row["a"] for row in reader.prefix_lookup({}, reader.table.all_columns, 99).rows] == list(range(40))


def test_a_block_that_goes_bad_below_online_rows(tmp_path: Path) -> None:
    table = Warehouse(tmp_path / "w").create_table(
        "CREATE TABLE t (a INT, v STRING, PRIMARY KEY (a) NOT ENFORCED) "
        "WITH ('bucket' = '1', 'file.compression' = 'none')"
    )
    snapshot = commit_rows(table, [{"a": i, "v": "x" * 100} for i in range(1000)])
    reader = overlaid(open_reader(table, tmp_path / "tablets"), tmp_path / "online")
    [file] = snapshot.files
    stored = table.storage.local_path(file.path)
    assert stored is not None
    content = bytearray(stored.read_bytes())
    content[len(content) // 2] ^= 1
    with stored.open("r+b") as target:
        target.write(content)
    projection, near = reader.table.all_columns, [(a,) for a in range(400, 600)]
    located = [key or b"" for key in reader.locate_many(near)]
    for read in (
        lambda: [reader.lookup(key, projection) for key in near],
        lambda: reader.lookup_many(near, projection),
        lambda: reader.prefix_lookup({}, projection, 1000),
        lambda: reader.rows_at(located),
        lambda: replay(reader, entries(inserted(table.schema, from_log(range(400, 600))))),
    ):
        with pytest.raises(CorruptData, match="checksum"):
            read()


def test_a_batch_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    """By one who asks for many keys, and by one who scans, while another thread puts."""
    rows = OnlineRows.open(tmp_path / "online", BlockCache(1 << 20))
    batch = [b"%04d" % i for i in range(500)]
    stop = threading.Event()
    torn: list[set[bytes | None]] = []

    def read() -> None:
        while not stop.is_set():
            looks = [set(rows.multi_get(batch)), {row for _, row in rows.scan()}]
            torn.extend(seen for seen in looks if len(seen) > 1)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in readers:
        thread.start()
    try:
        for number in range(150):
            rows.put_many(batch, [b"%d" % number] * len(batch))
    finally:
        stop.set()
        for thread in readers:
            thread.join()
    assert torn == []
    assert len(rows) == 150 * 500
