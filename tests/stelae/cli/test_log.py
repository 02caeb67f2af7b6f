"""Goal: `stelae log` prints what is in a log, a damaged one too: people can read it, programs can take it apart.

Method: logs of two owners, written through the codecs of a table; what the command prints of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stelae.cli.app import run
from stelae.encoding.keys import KeyCodec
from stelae.encoding.rows import RowCodec
from stelae.log.reader import LogState, recover
from stelae.log.records import Granted, Inserted
from stelae.log.writer import LogWriter
from stelae.snapshot.warehouse import Table, Warehouse
from stelae.storage.paths import segment_name


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Warehouse(tmp_path).create_table(
        "CREATE TABLE shop.uids (day STRING, name STRING, n INT, id BIGINT, PRIMARY KEY (day, name, n) NOT ENFORCED) "
        "PARTITIONED BY (day) WITH ('bucket' = '4')"
    )


def inserted(table: Table, bucket: int, asked: int, **ids: int) -> Inserted:
    keys, rows = KeyCodec(table.schema.key_columns), RowCodec(table.schema)
    return Inserted(
        schema_id=table.schema.id,
        partition=("2026-11-20",),
        bucket=bucket,
        keys=[keys.encode([name, -1]) for name in ids],
        rows=[rows.encode([number]) for number in ids.values()],
        asked=asked,
    )


@pytest.fixture
def folder(table: Table) -> Path:
    folder = table.storage.local_path("log")
    assert folder is not None
    writer = LogWriter(folder, 1, 0, LogState())
    writer.append([Granted(7, 1, 100_000), inserted(table, 3, 4, ann=1, bob=2)])
    writer.flush()
    writer.append([inserted(table, 0, 9, **{f"n{i}": 3 + i for i in range(7)})])
    writer.flush()
    LogWriter(folder, 3, 10, recover(folder)).close()
    return folder


def printed(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    assert run(["log", *words]) == code
    return capfd.readouterr()


def test_for_people(table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path))
    first, second = segment_name(1, 0), segment_name(3, 2)
    sizes = [(folder / name).stat().st_size for name in (first, second)]
    assert [" ".join(line.split()) for line in out.splitlines()] == [
        "segment epoch records size",
        f"{first} 1 0 to 1 {sizes[0]} B",
        f"{second} 3 2 to 9 {sizes[1]} B",
        "",
        "offset epoch record bucket keys",
        "0 1 granted claim 7: ids 1 to 100,000",
        "1 1 inserted 2026-11-20/3 2 of 4 keys: ann/-1, bob/-1",
        "2 3 inserted 2026-11-20/0 7 of 9 keys: n0/-1, n1/-1, n2/-1, n3/-1, n4/-1, ...",
        "3 3 skipped record 10 comes next",
        "",
        f"records 0 to 9 in {folder}; last claim 7: ids 1 to 100,000",
    ]


def test_from_an_offset_and_no_more_than_a_limit(
    table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def offsets(*words: str) -> list[int]:
        out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path), "--json", *words)
        return [record["offset"] for record in json.loads(out)["records"]]

    assert offsets() == [0, 1, 2, 3]
    assert offsets("--from", "2") == [2, 3]
    assert offsets("--from", "1", "--limit", "2") == [1, 2]
    assert offsets("--from", "99") == []
    for words in (["--limit", "-1"], ["--from", "-1"]):
        printed(capfd, "shop.uids", "-w", str(tmp_path), *words, code=2)


def test_for_programs(table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path), "--json")
    answer: dict[str, Any] = json.loads(out)
    assert answer["table"] == "shop.uids"
    assert (answer["epoch"], answer["start"], answer["end"]) == (3, 0, 10)
    assert answer["claim"] == {"number": 7, "first": 1, "last": 100_000}
    assert [segment["name"] for segment in answer["segments"]] == [segment_name(1, 0), segment_name(3, 2)]
    granted, some, _, skipped = answer["records"]
    assert granted == {"offset": 0, "epoch": 1, "bytes": 56, "kind": "granted", "claim": 7, "first": 1, "last": 100_000}
    assert (skipped["kind"], skipped["next"]) == ("skipped", 10)
    assert {name: value for name, value in some.items() if name != "bytes"} == {
        "offset": 1,
        "epoch": 1,
        "kind": "inserted",
        "schema_id": 0,
        "partition": ["2026-11-20"],
        "bucket": 3,
        "asked": 4,
        "rows": [{"name": "ann", "n": -1, "id": 1}, {"name": "bob", "n": -1, "id": 2}],
    }


def test_an_unfinished_flush_and_a_replaced_owner_are_told(
    table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    LogWriter(folder, 2, 0, LogState(log_id=recover(folder).log_id)).close()
    with (folder / segment_name(3, 2)).open("ab") as file:
        file.write(b"torn!")
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path))
    assert "5 bytes at the end are of an unfinished flush" in out
    assert f"{segment_name(2, 0)} does not count: another owner had taken over" in out


def test_what_stands_before_the_damage_is_printed(
    table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = folder / segment_name(3, 2)
    data = path.read_bytes()
    path.write_bytes(data[:-60] + b"?" + data[-59:])
    out, err = printed(capfd, "shop.uids", "-w", str(tmp_path), code=6)
    assert "ann/-1, bob/-1" in out
    assert "n0/-1" not in out
    assert f"record 2, which the segment was made with, is damaged\n  where: {path}, byte 80\n  hint: keep" in err
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path), "--json", code=6)
    assert [record["offset"] for record in json.loads(out)["records"]] == [0, 1]
    assert json.loads(out)["segments"] is None


def test_rows_of_older_schemas(table: Table, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    altered = Warehouse(tmp_path).alter_table("ALTER TABLE shop.uids ADD COLUMN city STRING")
    assert altered is not None
    state = recover(folder)
    keys, rows = KeyCodec(altered.schema.key_columns), RowCodec(altered.schema)
    writer = LogWriter(folder, 4, state.end, state)
    new = Inserted(altered.schema.id, ("x",), 1, [keys.encode(["z", 5])], [rows.encode([9, "Bern"])], 1)
    writer.append([new])
    writer.flush()
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path), "--json")
    rows_now = [record["rows"] for record in json.loads(out)["records"] if record["kind"] == "inserted"]
    assert rows_now[0][0] == {"name": "ann", "n": -1, "id": 1}
    assert rows_now[-1] == [{"name": "z", "n": 5, "id": 9, "city": "Bern"}]


def test_no_log(table: Table, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, err = printed(capfd, "shop.uids", "-w", str(tmp_path))
    assert (out, err) == ("", "shop.uids has no log: nothing was written to it online\n")
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path), "--json")
    assert json.loads(out)["segments"] == []
    folder = table.storage.local_path("log")
    assert folder is not None
    LogWriter(folder, 1, 0, LogState()).close()
    out, _ = printed(capfd, "shop.uids", "-w", str(tmp_path))
    assert "no records in" in out
