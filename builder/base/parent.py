"""What a build stands on: the parent snapshot, and who owns the table meanwhile.

    a table that gives no ids and never took online writes    nobody has to own it: the commit settles who was first
    owned by nobody that lives                                the build takes it over, and lets go when it has ended
    owned by a live server                                    beside it: ids come from the server, the log up to what
                                                              is durable for sure
    owned by a live build                                     Conflict

A build that owns the table reads parent and log *after* it took it, so that nothing comes to the log behind its back;
whoever takes the table from it commits the number that it wants first (`stelae/log/epochs.py`). So it lets go only when
the outcome of its commit is known. What it leaves behind otherwise is taken over like that of a build that was killed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from stelae.builder.base.owner_client import acknowledged
from stelae.errors import StelaeError, Unavailable
from stelae.log.epochs import Epoch
from stelae.log.takeover import Takeover, has_log, live_owner, log_range_beside, owned, take_over
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table

log = logging.getLogger("stelae.builder")

PATIENCE_S = 30.0
"""How long a takeover by somebody else may take."""
PAUSE_S = 0.2


@dataclass
class Ground:
    """Parent and owner of a build."""

    parent: Snapshot | None
    takeover: Takeover | None = None
    """The build's own."""
    server: Epoch | None = None
    """The owner beside which it builds."""
    log_until: int = 0
    """Records of the log below this offset are in the new snapshot."""
    outcome_unknown: bool = False
    """A commit was tried, and nobody knows yet whether it succeeded."""

    @property
    def log_from(self) -> int:
        """Records of the log below this offset are in the parent."""
        return self.parent.log_offset if self.parent is not None else 0

    @property
    def epoch(self) -> int:
        """The epoch under which ids are claimed."""
        if self.takeover is not None:
            return self.takeover.epoch.number
        return self.server.number if self.server is not None else 0


@contextmanager
def standing_on(table: Table, owner: str) -> Iterator[Ground]:
    """The ground of a build by that name, as long as the block runs."""
    if table.schema.auto_increment is None and not has_log(table):
        parent = table.snapshots.latest()
        yield Ground(parent, log_until=parent.log_offset if parent is not None else 0)
        return
    current = live_owner(table)
    if current is not None and current.kind == "server":
        yield _beside(table, current)
        return
    if current is not None:
        raise owned(table, current)
    takeover = take_over(table, "build", owner)
    ground = Ground(takeover.snapshot, takeover)
    ground.log_until = max(ground.log_from, takeover.log.end)
    try:
        yield ground
    finally:
        if ground.outcome_unknown:
            takeover.close()
        else:
            _release(takeover)


def _release(takeover: Takeover) -> None:
    """Let go. Where that fails the build has ended all the same: the next owner takes over as from a killed one."""
    try:
        takeover.release()
    except StelaeError as exc:
        log.warning("%s was not released: %s", takeover.table.name, exc)


def _beside(table: Table, server: Epoch) -> Ground:
    """The ground of a build beside a server that owns the table."""
    parent = table.snapshots.latest()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            # Asked first: of what it says, all is in the log that is read then.
            records = log_range_beside(table, parent, durable=acknowledged(server, str(table.name)))
            break
        except Unavailable:
            if time.monotonic() > deadline:
                raise
            time.sleep(PAUSE_S)  # A takeover takes a moment.
    ground = Ground(parent, server=server)
    ground.log_until = ground.log_from if records is None else records.until
    return ground
