"""Who may write a table, what its parent snapshot is, and up to where its log is covered: settled once, when a build
starts, and handed down. The plan, the rows of the log, ids and the commit take what they need from the lease.

    a table that gives no ids and never took online writes    nobody has to own it: the commit settles who was first
    owned by nobody that lives                                the build takes it over, and releases it at its end
    owned by a live server                                    stays the server's: ids come from it, and the log is
                                                              covered up to what is durable for sure
    owned by a live build                                     Conflict

A build that owns the table reads parent and log *after* it took it, so that no record is added behind its back;
whoever takes the table from it commits the number that it wants first (`stelae/ownership/epochs.py`). So it releases
only when the outcome of its commit is known. What it leaves behind otherwise is taken over like that of a build that
was killed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from stelae.builder.lease.owner_client import acknowledged
from stelae.errors import Conflict, CorruptData, InvalidRequest, StelaeError
from stelae.log.reader import LogPart, log_parts
from stelae.log.table_log import has_log, log_folder
from stelae.ownership.epochs import Epoch
from stelae.ownership.id_claims import IdRange, TableClaims, id_limit
from stelae.ownership.takeover import LogRange, Takeover, durable_log_range, live_owner, take_over
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table
from stelae.waiting import while_unavailable

logger = logging.getLogger("stelae.builder")

TAKEOVER_WAIT_S = 30.0
"""How long a takeover by somebody else may take."""
TAKEOVER_PAUSE_S = 0.2


@dataclass
class BuildLease:
    """What one build may do with its table. Of the driver; executors get parts of it."""

    table: Table
    build_id: str
    parent: Snapshot | None
    log: LogRange
    """Records of the log that the new snapshot takes in; those before are in the parent."""
    takeover: Takeover | None = None
    """The build's own."""
    server: Epoch | None = None
    """The server that owns the table, and goes on taking writes meanwhile."""
    outcome_unknown: bool = False
    """A commit was tried, and nobody knows yet whether it succeeded."""

    @property
    def owner(self) -> str:
        """The build's name as an owner of the table, and of claims."""
        return owner_name(self.build_id)

    def log_parts(self) -> tuple[LogPart, ...]:
        """Where the records of `log` are."""
        folder = log_folder(self.table.storage)
        if folder is None or self.log.first >= self.log.until:
            return ()
        return tuple(log_parts(folder, self.log.first, self.log.until))

    @cached_property
    def claims(self) -> TableClaims:
        """The claims of a table that gives ids."""
        column = self.table.schema.auto_increment
        if column is None:
            raise ValueError("the table gives no ids")
        return TableClaims(self.table.storage, id_limit(column))

    def claim_ids(self, count: int) -> IdRange | None:
        """Ids that are durably this build's; None for none. InvalidRequest when the column has no more."""
        if not count:
            return None
        epoch = self.takeover.epoch if self.takeover is not None else self.server
        number = epoch.number if epoch is not None else 0
        return self.claims.claim(count, owner=self.owner, epoch=number, purpose="build").ids

    def commit(self, snapshot: Snapshot) -> Snapshot:
        """Commit. Returns the snapshot as it is stored; Conflict when somebody else committed or took the table."""
        self.outcome_unknown = True
        try:
            stored = self._commit_behind_fences(snapshot)
        except (Conflict, CorruptData, InvalidRequest):
            self.outcome_unknown = False
            raise
        self.outcome_unknown = False
        return stored

    def _commit_behind_fences(self, snapshot: Snapshot) -> Snapshot:
        """Commit; behind the copies of its parent that new owners of the table have put to stop others.

        They stop a build that owned the table as well. One that leaves it to its owner has minted nothing that another
        owner could mint.
        """
        snapshots = self.table.snapshots
        while True:
            try:
                return snapshots.commit(snapshot)
            except Conflict:
                if self.takeover is not None or snapshots.read(snapshot.id).kind != "fence":
                    raise
                snapshot = replace(snapshot, id=snapshot.id + 1, parent=snapshot.id)


@contextmanager
def acquire_lease(table: Table, build_id: str) -> Iterator[BuildLease]:
    """The lease of a build, as long as the block runs. Conflict while another build has the table."""
    if table.schema.auto_increment is None and not has_log(table):
        parent = table.snapshots.latest()
        covered = _covered_by(parent)
        yield BuildLease(table, build_id, parent, LogRange(covered, covered))
        return
    owner = live_owner(table)
    if owner is not None and owner.kind == "server":
        yield _left_to_server(table, build_id, owner)
        return
    takeover = take_over(table, "build", owner_name(build_id))
    covered = _covered_by(takeover.snapshot)
    records = LogRange(covered, max(covered, takeover.log.end))
    lease = BuildLease(table, build_id, takeover.snapshot, records, takeover)
    try:
        yield lease
    finally:
        if lease.outcome_unknown:
            takeover.close()
        else:
            _release(takeover)


def owner_name(build_id: str) -> str:
    """What a build is called as an owner."""
    return f"build-{build_id}"


def _left_to_server(table: Table, build_id: str, server: Epoch) -> BuildLease:
    """The lease of a build that leaves the table to the server that owns it."""
    parent = table.snapshots.latest()
    # Asked first: of what it says, all is in the log that is read then. A takeover takes a moment.
    records = while_unavailable(
        lambda: durable_log_range(table, parent, durable=acknowledged(server, str(table.name))),
        wait_s=TAKEOVER_WAIT_S,
        max_pause_s=TAKEOVER_PAUSE_S,
    )
    covered = _covered_by(parent)
    return BuildLease(table, build_id, parent, records or LogRange(covered, covered), server=server)


def _covered_by(parent: Snapshot | None) -> int:
    """Records of the log below this offset are in the parent."""
    return parent.log_offset if parent is not None else 0


def _release(takeover: Takeover) -> None:
    """Where that fails the build has ended all the same: the next owner takes over as from a killed one."""
    try:
        takeover.release()
    except StelaeError as exc:
        logger.warning("%s was not released: %s", takeover.table.name, exc)
