"""Goal: whatever happens to servers and builds, nothing that a client was told is lost, told twice or changed.

Method: real `stelae serve` processes, half of them on a bad disk, are killed (SIGKILL) and stalled (SIGSTOP) at random
moments while clients insert keys that overlap. Books are kept of every answer. After each round they are held against
what storage has, read without a server, and against what the next server answers, to lookups and to inserts. What a
killed process wrote, the kernel keeps: what a power cut takes is played in tests/stelae/log/test_reader.py. Four
rounds run in the gate, some dozens in `make test-long`. All of it, on one table, or rounds of some kinds alone:

    python -m tests.service.test_crash 200
    python -m tests.service.test_crash 200 kill race     # or others; --seed N  --keep; without spark by default

    kill    a server: while it starts, right after it took the table, while it inserts, claims, or ends
    standby a second server starts at the same time, and takes the table when the owner is killed
    race    another server takes the table from one that runs or is stalled, which comes back and may insert nothing
    fold    builds beside the server commit snapshots that take in its log; it is killed while it swaps them
    mint    builds without a server own the table and give ids; they are given up anywhere, or come back late
    spark   builds with Spark: killed at random phases, beside a server that is killed, or without one (slow)

A line a round, a summary at the end; the exit code says whether all is well. Failures leave their folder.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path

import pytest

from stelae.errors import Conflict
from stelae.ownership.epochs import TableOwnership
from stelae.ownership.id_claims import TableClaims, id_limit
from stelae.snapshot.warehouse import Warehouse
from tests.length import length, only_long
from tests.service.crashing import (
    UIDS,
    Books,
    Client,
    Clients,
    Doomed,
    SparkBuilds,
    Stopped,
    epoch_number,
    fold,
    mint,
    stored_ids,
)
from tests.waiting import WAIT_S

KINDS = ["kill", "standby", "race", "fold", "mint", "spark"]
CI_SEED = 7
"""What is to happen is the same in every run with the other tests; when it happens is up to the machine."""
ROUNDS = length(
    short=("kill", "mint", "fold", "race"),
    long=("kill", "mint", "fold", "kill", "race", "standby", "mint", "fold", "kill") * 5,
)
DISKS = ("good", "good", "slow", "slow", "failing")
CLIENTS = 4
NAMES = "abc"
CHECKED_AT_ONCE = 2000
"""Keys of a request that checks what was told."""


class Crashes:
    """Rounds on one table, with the same books."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.warehouse = folder / "warehouse"
        self.table = Warehouse(self.warehouse).create_table(UIDS)
        self.books = Books()
        self.clients = Clients(self.books, CLIENTS, seed)
        self.servers: list[Doomed] = []
        """Those that run."""
        self.builds: SparkBuilds | None = None
        self.name = NAMES[0]
        self.startups_s: list[float] = []
        self.done: Counter[str] = Counter()
        """What happened how often."""

    def round(self, kind: str) -> str:
        """One round. Returns what happened; AssertionError when something is wrong."""
        return self.whole(kind, getattr(self, kind))

    def whole(self, kind: str, play: Callable[[], str]) -> str:
        """What is done, and the checks behind it."""
        happened = play()
        self.done[kind] += 1
        self.silence()
        self.check_storage()
        return happened

    # Rounds

    def kill(self) -> str:
        """One server, killed."""
        when = self.rng.choice(["starting", "took over", "inserting", "inserting", "claiming", "ending", "ended"])
        self.done[when] += 1
        epoch, server = epoch_number(self.table), self.start()
        if when == "starting":
            self.sleep(0.4, 1.3)
            server.kill()
            return "killed while it started"
        if when == "took over":
            self.wait_for(lambda: epoch_number(self.table) > epoch or not len(self.books), server)
            self.sleep(0, 0.06)
            server.kill()
            return "killed right after it took over"
        self.ready(server)
        self.clients.point_at(server)
        if self.rng.random() < 0.6:
            self.check_told(server)
        self.sleep(0, 0.5)
        if when == "claiming":
            claims = self.claims()
            self.wait_for(lambda: self.claims() > claims, server)
            self.sleep(0, 0.003)
        if when == "ending":
            server.process.terminate()
            self.sleep(0, 0.05)
        if when == "ended":
            server.end()
        else:
            server.kill()
        return f"killed when {when}"

    def standby(self) -> str:
        """Two servers; who has the table is killed, and the other one has it from then on."""
        servers = [self.start(name=name) for name in NAMES[:2]]
        for server in servers:
            server.rivalled = True
        with self.building() if self.rng.random() < 0.3 else nullcontext():
            if self.rng.random() < 0.3:
                self.sleep(0.4, 1.3)
            else:
                for index, server in enumerate(servers):
                    self.ready(server)
                    self.clients.point_at(server, only=slice(index, None, 2))
                self.sleep(0.05, 0.4)
            owner = TableOwnership(self.table.storage, str(self.table.name)).current()
            killed = next((server for server in servers if owner and server.name == owner.owner), servers[0])
            killed.kill()
            [other] = [server for server in servers if server is not killed]
            if not other.port:
                self.ready(other)
            self.clients.point_at(other)
            self.check_told(other)
            self.sleep(0, 0.2)
            other.kill()
        return f"{killed.name} was killed, {other.name} went on"

    def race(self) -> str:
        """Two servers; the second one takes over."""
        with self.building() if self.rng.random() < 0.3 else nullcontext():
            return self.taken_over()

    def taken_over(self) -> str:
        disks = ("good", "slow")  # Or the first one might get the table back by itself.
        first = self.start(disks=disks)
        self.ready(first)
        self.clients.point_at(first)
        self.sleep(0.05, 0.3)
        stalled = self.rng.random() < 0.8
        wakes_early = stalled and self.rng.random() < 0.4
        epoch = self.wait_for(lambda: epoch_number(self.table), first)
        first.rivalled = True
        if stalled:
            first.stall()
        self.clients.point_at(None, only=slice(CLIENTS // 2, None))
        second = self.start("--take-over", name=self.rng.choice(NAMES), disks=disks)
        if wakes_early:
            self.sleep(0.4, 1.3)
            first.go_on(taken_over=epoch_number(self.table) > epoch)
        self.wait_for(lambda: epoch_number(self.table) > epoch, second)
        if first.mute_from is None:
            first.mute_from = time.monotonic()
        self.ready(second)
        self.clients.point_at(second, only=slice(CLIENTS // 2, None))
        if self.rng.random() < 0.5:
            self.check_told(second)
        if stalled and not wakes_early:
            self.sleep(0, 0.1)
            first.go_on(taken_over=True)
        self.sleep(0.1, 0.3)
        how = f"{'stalled' if stalled else 'running'}{', woke early' if wakes_early else ''}"
        self.done[f"race: {how}"] += 1
        if self.rng.random() < 0.4:
            first.kill()
            self.sleep(0, 0.1)
            second.kill()
            return f"{how}; both killed"
        second.kill()
        first.mute_from = None
        self.check_told(first)
        self.sleep(0, 0.2)
        first.kill()
        self.done["race: the first one came back"] += 1
        return f"{how}; the second was killed, and the first took the table back"

    def fold(self) -> str:
        """A server, and builds beside it."""
        server = self.start()
        with self.building() as builds:
            if self.rng.random() < 0.2:
                self.sleep(0.4, 1.3)
                server.kill()
                return "killed while it started, beside builds"
            self.ready(server)
            self.clients.point_at(server)
            if self.rng.random() < 0.6:
                self.check_told(server)
            self.sleep(0, 0.5)
            newest, deadline = self.table.snapshots.latest_id(), time.monotonic() + 2
            while self.table.snapshots.latest_id() == newest and time.monotonic() < deadline:
                time.sleep(0.002)
            self.sleep(0, 0.5)
            if self.rng.random() < 0.3:
                self.check_told(server)
            server.kill()
        return f"killed while it swapped; {len(builds)} builds, the last: {builds[-1] if builds else 'none'}"

    @contextmanager
    def building(self) -> Iterator[list[str]]:
        """Builds beside whoever owns the table, one after the other, as long as the block runs."""
        builds: list[str] = []
        over = threading.Event()
        rng = random.Random(self.rng.random())

        def build() -> None:
            while not over.wait(rng.uniform(0, 0.4)):
                try:
                    builds.append(fold(self.table, rng))
                except Exception as exc:
                    self.books.complain(f"a build failed: {exc!r}")
                    return

        thread = threading.Thread(target=build)
        thread.start()
        try:
            yield builds
        finally:
            over.set()
            thread.join()
        self.done["snapshots of builds beside"] += sum(text.startswith("snapshot") for text in builds)
        self.done["rollbacks"] += sum("went back to" in text for text in builds)

    def mint(self) -> str:
        """Builds that give ids, before a server starts and while it does."""
        phase = self.rng.choice([None, "took", "claimed", "wrote", "wrote"])
        late, server = None, None
        if self.rng.random() < 0.4:
            server = self.start()
            self.sleep(0.3, 1.3)
        try:
            built = mint(self.table, self.rng, self.books, phase)
        except Stopped as stopped:
            built, late = f"stopped when it {phase}", stopped.late_commit
        except Conflict as exc:
            built = f"refused: {exc.message}"
        self.done[f"mint: {built.split(maxsplit=1)[0]}"] += 1
        server = server or self.start()
        if late is not None and self.rng.random() < 0.5:
            self.sleep(0, 1.3)
            committed = self.commit_late(late)
            built += f", came back before the server was ready, {committed}"
            late = None
        self.ready(server)
        server.rivalled = True  # As long as a build owns the table, a server shows its snapshot alone.
        self.clients.point_at(server)
        self.check_told(server)
        if late is not None:
            # A server that nobody has written to, of a table without a log, owns nothing: then the build is in time.
            current = TableOwnership(self.table.storage, str(self.table.name)).current()
            owned = current is not None and current.kind == "server"
            committed = self.commit_late(late)
            assert committed == "too late" or not owned, "a build committed although a server owned the table"
            built += f", came back late, {committed}"
        self.sleep(0, 0.2)
        server.kill()
        return f"build: {built}"

    def commit_late(self, commit: Callable[[], object]) -> str:
        try:
            commit()
        except Conflict:
            self.done["mint: too late"] += 1
            return "too late"
        self.done["mint: late, but committed"] += 1
        return "committed"

    def spark(self) -> str:
        """A build with Spark."""
        killed = self.rng.choice(["nobody", "build", "server"])
        phase = self.rng.choice(["plan", "write", "write", "validate", "commit"])
        return self.spark_build(beside=self.rng.random() < 0.5, killed=killed, phase=phase)

    def spark_build(self, *, beside: bool, killed: str, phase: str) -> str:
        """A build with Spark that a server gives its ids, or that gives them itself; one of them is killed in a phase
        of the build.
        """
        spark = self.builds = self.builds or SparkBuilds(self.warehouse, self.folder)
        server = None
        if beside:
            server = self.start()
            self.ready(server)
            self.clients.point_at(server)
        first, count = max(0, len(self.books) - self.rng.randint(0, 500)), self.rng.randint(1, 800)
        spark.begin(first, count)
        said = spark.wait_for(f"phase {phase}", "refused", "built")
        if said.startswith("phase"):
            if killed == "build":
                self.sleep(0, {"plan": 1, "write": 3}.get(phase, 0.03))
                spark.kill()
                self.builds, said = None, f"killed in {said}"
            elif killed == "server" and server is not None:
                self.sleep(0, 1)
                server.kill()
                server = self.start(port=server.port)
                self.ready(server)
                self.clients.point_at(server)
            if self.builds is not None:
                said = spark.wait_for("refused", "built")
        if server is None:
            server = self.start()
            self.ready(server)
            self.clients.point_at(server)
        self.check_told(server)
        self.sleep(0, 0.3)
        if said.startswith("built"):
            self.silence()
            stored = stored_ids(self.table)
            names = [f"k{number}" for number in range(first, first + count)]
            self.books.tell("a build", names, [stored[name] for name in names])
        self.done[f"spark: {said.split(maxsplit=1)[0]} {'beside a server' if beside else 'alone'}"] += 1
        return f"{'beside a server' if beside else 'alone'}, {killed} to be killed: {said}"

    # Servers

    def start(self, *arguments: str, name: str | None = None, port: int = 0, disks: Sequence[str] = DISKS) -> Doomed:
        if name is None and self.rng.random() < 0.3:
            name = self.rng.choice(NAMES)
        self.name = name or self.name
        disk = self.rng.choice(disks)
        self.done[f"{disk} disk"] += 1
        server = Doomed(self.warehouse, self.name, self.folder, *arguments, port=port, disk=disk)
        self.servers.append(server)
        return server

    def ready(self, server: Doomed) -> None:
        server.wait_ready()
        self.startups_s.append(server.startup_s)

    def silence(self) -> None:
        """No server runs any more, and every answer is in the books."""
        for server in self.servers:
            server.kill()
        self.clients.pause()
        for server in self.servers:
            self.books.wrong += server.complaints()
        self.servers.clear()

    def claims(self) -> int:
        column = self.table.schema.auto_increment
        assert column is not None
        return len(TableClaims(self.table.storage, id_limit(column)).numbers())

    # Checks

    def check_told(self, server: Doomed) -> None:
        """A server that owns the table, or is about to, answers everything as it was told."""
        client = Client(server, self.books)
        names = list(self.books.names)
        deadline = time.monotonic() + WAIT_S
        for first in range(0, len(names), CHECKED_AT_ONCE):
            some = names[first : first + CHECKED_AT_ONCE]
            while not client.insert(some):
                assert time.monotonic() < deadline, f"server {server.name} takes no inserts"
                time.sleep(0.01)
        server.rivalled = False
        for first in range(0, len(names), CHECKED_AT_ONCE):
            assert client.look_up(names[first : first + CHECKED_AT_ONCE])
        client.close()

    def check_storage(self) -> None:
        self.books.check_against(stored_ids(self.table))
        assert not self.books.wrong, "\n".join(self.books.wrong[:20])

    def check_at_the_end(self) -> None:
        """A last server has everything; `stelae verify` is content."""
        server = self.start()
        self.ready(server)
        self.check_told(server)
        server.end()
        self.silence()
        self.check_storage()
        command = [sys.executable, "-m", "stelae", "verify", "shop.uids", "-w", str(self.warehouse)]
        verified = subprocess.run(command, capture_output=True, text=True, check=False)
        assert verified.returncode == 0, verified.stdout + verified.stderr

    # Time

    def sleep(self, least_s: float, most_s: float) -> None:
        time.sleep(self.rng.uniform(least_s, most_s))

    def wait_for(self, what: Callable[[], object], server: Doomed) -> int:
        """Until something is so, or the server has ended. Returns it, if it is a number."""
        deadline = time.monotonic() + WAIT_S
        while True:
            found = what()
            if found or server.process.poll() is not None:
                return int(found) if isinstance(found, int) else 0
            assert time.monotonic() < deadline, f"waited for server {server.name} in vain: {server.log.read_text()}"
            time.sleep(0.001)

    def close(self) -> None:
        if self.builds is not None:
            self.builds.kill()
        for server in self.servers:
            with suppress(ProcessLookupError):
                server.process.kill()
        self.clients.stop()
        for server in self.servers:
            server.process.wait()


@contextmanager
def crashes(folder: Path, seed: int) -> Iterator[Crashes]:
    print(f"seed {seed}")
    running = Crashes(folder, seed)
    try:
        yield running
    finally:
        running.close()


@pytest.mark.long
def test_servers(tmp_path: Path) -> None:
    with crashes(tmp_path, CI_SEED) as running:
        for kind in ROUNDS:
            print(f"{kind}: {running.round(kind)}")
        running.check_at_the_end()
        assert len(running.books) > 0


@only_long
def test_builds_with_spark(tmp_path: Path) -> None:
    with crashes(tmp_path, CI_SEED) as running:
        for beside, killed in ((True, "server"), (False, "build")):
            play = partial(running.spark_build, beside=beside, killed=killed, phase="write")
            happened = running.whole("spark", play)
            print(happened)
            assert ("killed in" if killed == "build" else "built") in happened
        running.check_at_the_end()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rounds", type=int)
    parser.add_argument("kinds", nargs="*", metavar="kind", help="default: all but spark")
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--keep", action="store_true", help="leave the folder")
    given = parser.parse_args()
    kinds = given.kinds or KINDS[:-1]
    if not set(kinds) <= set(KINDS):
        parser.error(f"kinds are {', '.join(KINDS)}")
    folder = Path(tempfile.mkdtemp(prefix="stelae-crash-"))
    started = time.monotonic()
    with crashes(folder, given.seed) as running:
        print(f"folder {folder}")
        try:
            for number in range(1, given.rounds + 1):
                kind, began, told = running.rng.choice(kinds), time.monotonic(), len(running.books)
                happened = running.round(kind)
                print(
                    f"{number:4} {kind}: {happened}; {len(running.books):,} keys told "
                    f"(+{len(running.books) - told:,}), {time.monotonic() - began:.1f} s",
                    flush=True,
                )
            running.check_at_the_end()
        except AssertionError as exc:
            print(f"FAILED: {exc}")
            return 1
        print(f"{given.rounds} rounds in {time.monotonic() - started:.0f} s, nothing lost, twice or changed")
        print(
            f"{len(running.books):,} keys told in {running.books.requests:,} answers; {running.claims():,} claims, "
            f"epoch {epoch_number(running.table)}, snapshot {running.table.snapshots.latest_id()}; "
            f"slowest takeover {max(running.startups_s):.1f} s"
        )
        print(", ".join(f"{what} {count}" for what, count in sorted(running.done.items())))
    if not given.keep:
        shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
