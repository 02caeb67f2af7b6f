"""The outline of a log: which segments count, and up to which record. From their headers alone.

    segment-000000000003-00000000000000000000.log     epoch 3, records 0 to 41, and maybe more that count no more
    segment-000000000005-00000000000000000042.log     epoch 5: "epoch 3 ends at 42"; then record 42, ...

From the newest epoch back, each epoch names the one before it and says where its records end. A former owner that was
fenced may have written anything since; what its successor says of it decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stelae.errors import CorruptData
from stelae.log.errors import KEEP
from stelae.log.segments import SegmentHeader
from stelae.storage.paths import segment_name


@dataclass(frozen=True, slots=True)
class CountedSegment:
    """A segment as far as it counts."""

    header: SegmentHeader
    until: int | None
    """Its records up to this offset count, and are there. None: all of them; it is the newest segment."""


@dataclass(frozen=True, slots=True)
class Outline:
    """Which segments count, as their headers say it. `outline` makes it."""

    start: int
    """Records from this offset on are there. Those below were removed, or never were."""
    counted: tuple[CountedSegment, ...]
    """In the order of their records. Empty: there is no log yet."""
    ignored: tuple[SegmentHeader, ...]
    """Segments without any record that counts: of writers that were fenced before."""


def outline(headers: Sequence[SegmentHeader], folder: str) -> Outline:
    """The segments that count: from the newest epoch back, as each epoch names the one before it.

    `headers` are those of all segments in a folder; its name is for errors. A writer that was fenced may have written
    anything since, segments too; what its successor says of it decides. CorruptData when segments contradict each
    other, or one is not there although older ones are.
    """
    epochs: dict[int, list[SegmentHeader]] = {}
    for header in sorted(headers, key=lambda header: (header.epoch, header.base)):
        epochs.setdefault(header.epoch, []).append(header)
    segments: list[CountedSegment] = []
    start, epoch, until = 0, max(epochs, default=0), None
    while epoch in epochs:
        group = epochs[epoch]
        check_one_log([*group, *(segment.header for segment in segments)], folder)
        check_one_epoch(group, folder)
        of_epoch = [header for header in group if until is None or header.base < until]
        bounds = [*(header.base for header in of_epoch[1:]), until]
        segments[:0] = map(CountedSegment, of_epoch, bounds)
        begin = of_epoch[0].base if of_epoch else until
        first = group[0]
        start, epoch, until = first.previous_end, first.previous_epoch, first.previous_end
        if begin is not None and begin > first.previous_end:
            # The epoch's first segments were removed, and with them all that came before.
            check_nothing_before(epochs.get(epoch, ()), first, begin, folder)
            start = begin
            break
    counts = {segment.header for segment in segments}
    return Outline(start, tuple(segments), tuple(header for header in headers if header not in counts))


def check_one_log(headers: Sequence[SegmentHeader], folder: str) -> None:
    """All segments are of one log."""
    for header in headers:
        if header.log_id != headers[-1].log_id:
            raise CorruptData(
                f"the segment is of another table's log than {headers[-1].name}",
                place=f"{folder}/{header.name}",
                hint=KEEP,
            )


def check_one_epoch(headers: Sequence[SegmentHeader], folder: str) -> None:
    """The segments of an epoch say the same of what came before it."""
    first = headers[0]
    for header in headers:
        if (header.previous_epoch, header.previous_end) != (first.previous_epoch, first.previous_end):
            raise CorruptData(
                f"the segment and {first.name} say different things of the epoch before them",
                place=f"{folder}/{header.name}",
                hint=KEEP,
            )


def check_nothing_before(former: Sequence[SegmentHeader], first: SegmentHeader, begin: int, folder: str) -> None:
    """Segments are removed oldest first: if one is gone, so are all before it."""
    if any(header.base < first.previous_end for header in former):
        raise CorruptData(
            f"records {first.previous_end} to {begin - 1} of epoch {first.epoch} are not there, but older ones are",
            place=f"{folder}/{segment_name(first.epoch, first.previous_end)}",
            hint="a segment is lacking; " + KEEP,
        )


def removable(plan: Outline, covered: int) -> tuple[SegmentHeader, ...]:
    """Segments that nobody needs when snapshots hold all records below `covered`, in the order to remove them.

    That order leaves a log that reads from some offset on, wherever it is cut off. The newest segment always stays: it
    says where the log ends. Segments that were ignored go with the epochs that say so.
    """
    gone: list[SegmentHeader] = []
    for segment in plan.counted:
        if segment.until is None or segment.until > covered:
            gone += [header for header in plan.ignored if header.epoch < segment.header.epoch]
            break
        gone.append(segment.header)
    return tuple(gone)
