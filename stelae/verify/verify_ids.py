"""Verifying what makes an id unique: the claims of ids, the epochs of ownership, and the ids themselves.

claims    readable, without gaps, no id claimed twice
epochs    readable, without gaps; every claim names one that there is
ids       of a dictionary table, those in its log included: every row has one, all are claimed, no two the same
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from stelae.errors import CorruptData, NotFound
from stelae.log.reader import read_log, recover
from stelae.log.replay import replay
from stelae.log.table_log import has_log, log_folder
from stelae.ownership.epochs import FIRST_EPOCH, TableOwnership, check_epochs_are_gapless
from stelae.ownership.id_claims import (
    BIGINT_LIMIT,
    FIRST_CLAIM,
    FIRST_ID,
    TableClaims,
    check_claims_are_dense,
    check_claims_are_disjoint,
    id_limit,
)
from stelae.read.open_snapshot import open_snapshot
from stelae.rocksdb.block_cache import BlockCache
from stelae.rocksdb.online_rows import OnlineRows
from stelae.snapshot.manifest import Snapshot
from stelae.snapshot.warehouse import Table
from stelae.storage.paths import CLAIM_FOLDER, EPOCH_FOLDER, claim_path, epoch_path
from stelae.units import MIB
from stelae.verify.verify_files import Problem

DECODED_ROWS = 16_384
"""Rows whose ids are looked at together."""

NumberedT = TypeVar("NumberedT")


def ownership_problems(table: Table) -> list[Problem]:
    """What is wrong with the id claims and the epochs of a table; most tables have neither."""
    column = table.schema.auto_increment
    ids = TableClaims(table.storage, BIGINT_LIMIT if column is None else id_limit(column))
    ownership = TableOwnership(table.storage, str(table.name))
    # Claims first: the epoch that a claim names was there before it.
    claims, problems = _read_all(ids.numbers(), FIRST_CLAIM, ids.read, claim_path)
    epochs, bad_epochs = _read_all(ownership.numbers(), FIRST_EPOCH, ownership.read, epoch_path)
    problems += bad_epochs
    problems += _broken(check_claims_are_disjoint, claims, CLAIM_FOLDER)
    if not problems:  # Else one bad file would be told several times.
        problems += _broken(check_claims_are_dense, claims, CLAIM_FOLDER)
        problems += _broken(check_epochs_are_gapless, epochs, EPOCH_FOLDER)
        problems += [
            Problem(claim_path(claim.number), f"names epoch {claim.epoch}; there are {len(epochs)}")
            for claim in claims
            if claim.epoch > len(epochs)
        ]
    return problems


def _read_all(
    listed: list[int], first: int, read: Callable[[int], NumberedT], path_of: Callable[[int], str]
) -> tuple[list[NumberedT], list[Problem]]:
    """Numbered files up to the last one that is listed: what they hold, and which can't be read or are lacking."""
    found: list[NumberedT] = []
    problems: list[Problem] = []
    number = min([first, *listed])
    while listed and number <= listed[-1]:
        try:
            found.append(read(number))
        except CorruptData as exc:
            problems.append(Problem(path_of(number), exc.message))
        except NotFound:
            problems.append(Problem(path_of(number), "no such file, but there are later ones"))
            listed = [other for other in listed if other > number]
            number = min(listed, default=number)
            continue
        number += 1
    return found, problems


def _broken(check: Callable[[list[NumberedT], str], None], values: list[NumberedT], folder: str) -> list[Problem]:
    """What an invariant says against some values."""
    try:
        check(values, folder)
    except CorruptData as exc:
        return [Problem(folder, exc.message)]
    return []


def id_problems(table: Table, snapshot: Snapshot, scratch: Path) -> list[Problem]:
    """Whether every visible row has an id of its own, and so has every row of the log that is not in the snapshot. For
    a table whose claims and epochs are whole. `scratch`: a folder to open the snapshot in.
    """
    names = table.schema.options.auto_increment_fields
    reader = open_snapshot(table, snapshot, scratch, BlockCache(8 * MIB))
    folder = log_folder(table.storage)
    if folder is not None and has_log(table):
        reader = reader.with_online(OnlineRows.open(scratch / "online", BlockCache(8 * MIB)))
        # Only what is durable for sure: a server may be writing.
        until = max(recover(folder).last_flush, snapshot.log_offset)
        entries = read_log(folder, snapshot.log_offset)
        replay(reader, takewhile(lambda entry: entry.offset < until, entries))
    newest = TableClaims(table.storage, BIGINT_LIMIT).newest()
    seen = SeenIds(0 if newest is None else newest.ids.last)
    for rows in reader.visible_rows(DECODED_ROWS):
        [ids] = reader.table.rows.decode_batch(pa.array(rows, pa.binary()), names)
        wrong = f"{ids.null_count} rows have no id" if ids.null_count else seen.add(ids.to_numpy().astype(np.int64))
        if wrong:
            return [Problem(f"column {names[0]}", wrong)]
    return []


class SeenIds:
    """Which ids there are: a bit for each, in blocks of those ranges that have any."""

    BLOCK_BITS = 20

    def __init__(self, last: int) -> None:
        """`last` is the greatest id that was ever claimed."""
        self.last = last
        self._blocks: dict[int, npt.NDArray[np.uint8]] = {}

    def add(self, ids: npt.NDArray[np.int64]) -> str:
        """Take some ids, and say what is wrong with one of them; '' if nothing is."""
        wild = (ids < FIRST_ID) | (ids > self.last)
        if wild.any():
            return f"id {ids[wild][0]} was never claimed; claims end at {self.last}"
        ids = np.sort(ids)
        same = ids[1:] == ids[:-1]
        if same.any():
            return f"id {ids[1:][same][0]} is of two keys"
        numbers = ids >> self.BLOCK_BITS
        for number in np.unique(numbers):
            bits = np.zeros(1 << self.BLOCK_BITS, np.bool_)
            bits[ids[numbers == number] & ((1 << self.BLOCK_BITS) - 1)] = True
            packed = np.packbits(bits)
            before = self._blocks.get(int(number))
            if before is not None and (before & packed).any():
                twice = np.flatnonzero(np.unpackbits(before & packed))[0]
                return f"id {(int(number) << self.BLOCK_BITS) + int(twice)} is of two keys"
            self._blocks[int(number)] = packed if before is None else before | packed
        return ""
