"""Goal: what benchmarks compute is right, so that their figures mean what they say; and each of them can be run at all.

Method: the logic alone, on small data: distributions against their formulas, percentiles and targets by hand, stores
against the rows they were filled with, loads against servers that answer as the test wants, reports from results that
were saved. How long anything takes is nothing that a test looks at.
"""

from __future__ import annotations

import importlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgpack
import numpy as np
import pyarrow as pa
import pytest

from benchmarks import load, processes
from benchmarks.__main__ import STUDIES, benchmark_names, choose, unused
from benchmarks.common import RECORD_VARIABLE, Plot, Ratio, draw, facts, left_out, listing, meets, percentiles, show
from benchmarks.distributions import fnv_hash, scrambled_zipf, uniform, zipf_ranks
from benchmarks.people import chunks, create_people, ids_of, make_people, missing_ids_of, rows_of
from benchmarks.plots import draw_all
from benchmarks.readers import ClientProcess, Lmdb, Reader, RocksDB, arrow_values
from benchmarks.report import BEGIN, END, insert, markdown
from benchmarks.report import main as report
from benchmarks.results import Benchmark, Results, combine, load_results, new_results, read_records
from benchmarks.stores import lmdb_store, pairs
from stelae.snapshot.warehouse import Table

ROOT = Path(__file__).parent.parent

# Benchmarks


@pytest.mark.parametrize("name", benchmark_names())
def test_benchmark_can_be_imported_and_is_described(name: str) -> None:
    module = importlib.import_module(f"benchmarks.bench_{name}")
    assert callable(module.main)
    assert f"bench_{name}" in (ROOT / "docs/benchmarks.md").read_text(), "say in docs/benchmarks.md what it measures"


def test_suite_has_all_but_studies() -> None:
    names = benchmark_names()
    assert set(STUDIES) <= set(names)
    assert choose(names, None) == [name for name in names if name not in STUDIES]
    assert choose(names, "log, bench_build") == ["log", "build"]
    with pytest.raises(SystemExit, match=r"there is no benchmark 'lookups'; there are .*lookup"):
        choose(names, "lookups")


# Distributions


def test_zipf_ranks_come_as_often_as_the_formula_says() -> None:
    items, count = 1_000, 400_000
    seen = np.bincount(zipf_ranks(items, count, seed=1), minlength=items) / count
    shares = np.arange(1, items + 1) ** -0.99
    wanted = shares / shares.sum()
    assert len(seen) == items
    assert seen[:3] == pytest.approx(wanted[:3], rel=0.03)
    for first, last in ((3, 10), (10, 100), (100, 500), (500, 1_000)):
        assert seen[first:last].sum() == pytest.approx(wanted[first:last].sum(), rel=0.03)


def test_scrambled_zipf_scatters_the_same_ranks() -> None:
    items = 5_000
    drawn = scrambled_zipf(items, 100_000, seed=1)
    assert drawn.min() >= 0
    assert drawn.max() < items
    counts = np.bincount(drawn, minlength=items)
    hottest = [int(fnv_hash(np.array([rank]))[0]) % items for rank in range(3)]
    assert sorted(counts.argsort()[-3:].tolist()) == sorted(hottest)
    assert np.ptp(hottest) > items / 100, "hot items are not neighbours"


def test_uniform_draws_all_items_alike() -> None:
    counts = np.bincount(uniform(10, 100_000, seed=1), minlength=10)
    assert len(counts) == 10
    assert counts == pytest.approx(np.full(10, 10_000), rel=0.05)


def test_draws_are_the_same_in_every_run() -> None:
    for distribution in (uniform, zipf_ranks, scrambled_zipf):
        assert np.array_equal(distribution(1_000, 100, 7), distribution(1_000, 100, 7))
        assert not np.array_equal(distribution(1_000, 100, 7), distribution(1_000, 100, 8))


@pytest.mark.parametrize("value", [0, 1, 255, 256, 123_456_789, 2**63 - 1])
def test_fnv_hash_is_fnv_1a(value: int) -> None:
    wanted = 0xCBF29CE484222325
    for byte in value.to_bytes(8, "little"):
        wanted = (wanted ^ byte) * 0x100000001B3 % 2**64
    assert int(fnv_hash(np.array([value]))[0]) == wanted


# Figures


def test_percentiles_are_values_that_were_measured() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1, 10_001))
    assert percentiles(values) == {"p50": 5_000, "p90": 9_000, "p99": 9_900, "p99.9": 9_990}


def test_percentiles_that_few_values_lie_beyond_are_left_out() -> None:
    assert list(percentiles(np.arange(1_000))) == ["p50", "p90", "p99"]
    assert list(percentiles(np.arange(999))) == ["p50", "p90"]
    assert percentiles(np.array([])) == {}


@pytest.mark.parametrize(
    ("value", "target", "met"),
    [
        (1.4, "<= 1.4", True),
        (1.41, "<= 1.4", False),
        (0.6, ">= 0.6", True),
        (0.59, ">=0.6", False),
        (1.0, "< 1", False),
        (2.0, "> 1", True),
        (2.0, "", None),
        (2.0, "none", None),
    ],
)
def test_targets(value: float, target: str, met: bool | None) -> None:
    assert meets(value, target) is met


# Processes

linux = pytest.mark.skipif(sys.platform != "linux", reason="benchmarks look at processes on Linux only")


@linux
def test_processor_time_and_memory_are_those_of_children_too() -> None:
    burn = (
        "import time; data = bytearray(50_000_000)\nwhile time.process_time() < 0.3: pass\nprint(flush=True); input()"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {burn!r}])"
    process = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()
    assert len(processes.tree(process.pid)) == 2
    assert processes.cpu_s(process.pid) >= 0.3
    assert processes.memory_bytes(process.pid) > 50_000_000
    process.stdin.write(b"\n")
    process.stdin.close()
    process.wait(30)


def test_files_with_two_names_are_counted_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    alone = processes.file_bytes(tmp_path)
    assert alone >= 100_000
    os.link(tmp_path / "a", tmp_path / "b")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10**9)
    assert processes.file_bytes(tmp_path) == alone


@linux
def test_pinned_is_undone() -> None:
    before = os.sched_getaffinity(0)
    with processes.pinned([min(before)]):
        assert os.sched_getaffinity(0) == {min(before)}
    assert os.sched_getaffinity(0) == before


# Stores


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Table, int]:
    """Warehouse, table, rows."""
    warehouse = tmp_path_factory.mktemp("warehouse")
    table = create_people(warehouse, "bench.people", {"bucket": "3"})
    make_people(table, 2_000)
    return warehouse, table, 2_000


def test_chunks_are_all_rows_in_key_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.people.CHUNK_ROWS", 300)
    whole = pa.concat_tables(list(chunks(1_000)))
    assert whole == rows_of(np.arange(1_000))
    assert whole["user_id"].to_pylist() == ids_of(np.arange(1_000)).tolist()


@pytest.mark.parametrize("reader", [RocksDB, Lmdb])
def test_stores_in_process_have_the_rows(reader: type[Reader], people: tuple[Path, Table, int], tmp_path: Path) -> None:
    warehouse, table, rows = people
    address = f"{warehouse} {table.name} 1000000"
    if reader is Lmdb:
        address = lmdb_store(tmp_path / "lmdb", warehouse, table, rows).address
    numbers = np.random.default_rng(1).permutation(rows)[:500]
    ids = np.concatenate([ids_of(numbers), missing_ids_of(numbers)])
    with ClientProcess(reader, address) as client:
        assert client.check(ids) == [*arrow_values(rows_of(numbers)), *[None] * 500]
        np.save(tmp_path / "ids.npy", ids)
        client.prepare(tmp_path / "ids.npy", 100)
        client.warm()
        client.start(0.05)
        work = client.result()
        assert work.keys > 0
        assert work.keys % 100 == 0


def test_client_that_fails_says_why(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"(?s)a client failed:.*bench.nothing"):
        ClientProcess(RocksDB, f"{tmp_path} bench.nothing 1000000")


def test_redis_gets_the_same_rows() -> None:
    [pair] = pairs(rows_of(np.array([21])), msgpack.Packer().pack)
    key, value = pair.split(b"\r\n", 2)[1], pair.split(b"\r\n", 4)[3]
    assert key == b"42"
    row = msgpack.unpackb(value)
    [wanted] = arrow_values(rows_of(np.array([21])))
    assert tuple(row.values()) == wanted
    assert list(row) == ["name", "city", "age", "score", "updated"]


# Load

OK = b"HTTP/1.1 200 OK\r\nServer: x\r\nContent-Length: 5\r\n\r\nhello"


@pytest.mark.parametrize(
    ("complete", "answer"),
    [
        (load.http_complete, OK),
        (load.http_complete, OK.replace(b"Content-Length", b"content-length")),
        (load.redis_complete, b"$5\r\nhe\r\no\r\n"),
        (load.postgres_row, b"2\0\0\0\4D\0\0\0\7\0\0\0C\0\0\0\5\0Z\0\0\0\5I"),
        (load.postgres_complete, b"R\0\0\0\x08\0\0\0\0Z\0\0\0\5I"),
    ],
)
def test_answer_is_complete_at_its_last_byte(complete: load.Complete, answer: bytes) -> None:
    assert [size for size in range(1, len(answer) + 1) if complete(answer[:size])] == [len(answer)]


@pytest.mark.parametrize(
    ("complete", "answer"),
    [
        (load.http_complete, OK.replace(b"200 OK", b"404 Not Found")),
        (load.redis_complete, b"$-1\r\n"),
        (load.redis_complete, b"-ERR no\r\n"),
        (load.postgres_complete, b"E\0\0\0\x20SERROR\0"),
        (load.postgres_row, b"2\0\0\0\4C\0\0\0\5\0Z\0\0\0\5I"),
    ],
)
def test_wrong_answer_is_refused(complete: load.Complete, answer: bytes) -> None:
    with pytest.raises(ValueError, match=r"not what was asked for|PostgreSQL"):
        complete(answer)


class SlowStart:
    """A server that answers at once, but for the first request: that one, and what comes meanwhile, waits."""

    def __init__(self, pause_s: float) -> None:
        self.pause_s = pause_s
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listening.getsockname()[1]
        self.asked: list[bytes] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            connection, _ = self.listening.accept()
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        while data := connection.recv(10_000):
            self.asked.append(data.split()[1])
            if self.pause_s:
                time.sleep(self.pause_s)
                self.pause_s = 0
            # In two pieces.
            connection.sendall(OK[:30])
            connection.sendall(OK[30:])


def test_closed_loop_asks_again_when_it_is_answered() -> None:
    server = SlowStart(0)
    protocol = load.http(["/a", "/b"])
    connections = load.connect(server.port, protocol, 3)
    done = load.closed_loop(connections, protocol, 0.1)
    assert len(done.latencies_us) == len(server.asked) >= 3
    assert set(server.asked) == {b"/a", b"/b"}
    assert done.per_second == pytest.approx(len(server.asked) / done.seconds)
    assert (done.latencies_us > 0).all()


def test_open_loop_charges_a_stall_to_all_who_wait_for_it() -> None:
    server = SlowStart(0.2)
    protocol = load.http(["/"])
    done = load.open_loop(load.connect(server.port, protocol, 1), protocol, rate=100, seconds=0.3)
    assert len(done.latencies_us) == len(server.asked) == 30
    # Those due at 0, 10, 20, ... ms have to wait until 200 ms are over.
    for number in range(15):
        assert done.latencies_us[number] >= 200_000 - number * 10_000


# Results


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in which everything was recorded once."""
    path = tmp_path / "records"
    monkeypatch.setenv(RECORD_VARIABLE, str(path))
    show(
        "Race", [Ratio("ours | theirs", 30, 20, "1/s", ">= 2", note="in the rain"), Ratio("bytes", 1, 2, "GB", "<= 1")]
    )
    listing("Stores", ["", "bytes"], [["Stelae", 12_345.0], ["Redis", "-"]])
    draw(Plot("curve", "A curve", "keys", "keys a second", {"Stelae": [(1, 10), (10, 100)], "Other": [(1, 5)]}))
    draw(Plot("latency", "Another", "share", "us", {"Stelae": [(1, 10), (10, 100)]}, {"0 %": 1, "90 %": 10}))
    facts(rows=10_000_000, settings="all of them")
    left_out("Redis", "it is not installed")
    return path


@pytest.fixture
def results(recorded: Path) -> Results:
    run = new_results(quick=True)
    run.benchmarks = [Benchmark("race", 90.0, False, read_records(recorded)), Benchmark("fall", 1.0, True)]
    return run


def test_nothing_is_recorded_without_a_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(RECORD_VARIABLE, raising=False)
    show("Race", [Ratio("ours", 30, 20, "1/s", ">= 2")])
    assert "1.50" in capsys.readouterr().out


def test_record_that_was_cut_is_left_out(recorded: Path, tmp_path: Path) -> None:
    whole = read_records(recorded)
    assert [record["kind"] for record in whole] == ["ratios", "listing", "plot", "plot", "facts", "left out"]
    recorded.write_text(recorded.read_text()[:-10])
    assert read_records(recorded) == whole[:-1]
    assert read_records(tmp_path / "nothing") == []


def test_results_come_back_from_their_file(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "results.json"
    results.save(path)
    back = load_results(path)
    assert back.name == results.name
    assert back.machine == results.machine
    assert markdown(back, {}) == markdown(results, {})
    assert [path.name for path in path.parent.iterdir()] == ["results.json"]


def test_results_say_what_they_were_measured_with(results: Results) -> None:
    assert {"Python", "pyarrow", "rocksdict", "RocksDB", "redis", "LMDB"} <= results.versions.keys()
    assert results.machine.keys() == {"processor", "cores", "memory_bytes", "system"}
    assert results.name.endswith("-quick")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2}', '{"format": 1, "benchmarks": []}'])
def test_other_files_are_no_results(content: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(SystemExit, match="no results of `python -m benchmarks`"):
        load_results(path)


def test_of_several_runs_the_last_counts(results: Results) -> None:
    again = new_results(quick=True)
    again.benchmarks = [Benchmark("fall", 2.0, False)]
    both = combine([results, again])
    assert [(each.name, each.failed) for each in both.benchmarks] == [("race", False), ("fall", False)]
    assert both.seconds == 92
    with pytest.raises(SystemExit, match="different machines or sizes"):
        combine([results, new_results(quick=False)])


def test_results_of_the_same_day_have_their_own_files(tmp_path: Path) -> None:
    path = tmp_path / "day.json"
    assert unused(path) == path
    for name in ("day.json", "day-2.json"):
        (tmp_path / name).touch()
    assert unused(path) == tmp_path / "day-3.json"


# Reports


def test_report_has_everything(results: Results) -> None:
    text = "\n".join(markdown(results, {"curve": "benchmarks/curve.svg"}))
    assert "Quick run of " in text
    assert "### Targets: 1 of 2 met" in text
    assert "| race | Race | ours \\| theirs | 1/s | 1.50 | >= 2 | **no** |" in text
    assert "| bytes | 1 | 2 | GB | 0.50 | <= 1 | yes |" in text
    assert "in the rain" in text
    assert "| Stelae | 12,345 |" in text
    assert "rows 10,000,000; settings all of them." in text
    assert "![A curve](benchmarks/curve.svg)" in text
    assert "Left out: Redis. it is not installed" in text
    assert "### fall\n\n**This benchmark failed" in text


def test_report_replaces_what_is_between_the_marks(results: Results, tmp_path: Path) -> None:
    page, saved = tmp_path / "page.md", tmp_path / "results.json"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    results.save(saved)
    for _ in range(2):  # The second time finds what the first has written.
        report([str(saved), "--into", str(page)])
        text = page.read_text()
        assert text.startswith(f"before\n\n{BEGIN}\n\nQuick run")
        assert text.endswith(f"\n\n{END}\n\nafter\n")
        assert "old" not in text
        assert "![A curve](page/curve.svg)" in text
    assert (tmp_path / "page" / "curve.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_report_needs_its_marks(text: str) -> None:
    with pytest.raises(SystemExit, match=r"page\.md: needs a line"):
        insert(text, ["x"], "page.md")


def test_plots_of_the_same_results_are_the_same_files(results: Results, tmp_path: Path) -> None:
    first, second = (draw_all(results, tmp_path / name) for name in ("a", "b"))
    assert list(first) == ["curve", "latency"]
    for name, path in first.items():
        assert path.read_bytes() == second[name].read_bytes()
    assert "90 %" in first["latency"].read_text()


def test_page_has_the_marks() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert insert(page, [], "docs/benchmarks.md")
