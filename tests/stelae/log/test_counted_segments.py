"""Goal: segments that every snapshot covers are told, and no others.

Method: headers of a small log over several epochs, at every offset. What lacking segments, and some that contradict
each other, do to readers is in test_reader.py.
"""

from __future__ import annotations

import pytest

from stelae.log.counted_segments import outline, removable
from stelae.log.segments import SegmentHeader
from tests.stelae.log.logs import LOG_ID


def headers_of(*segments: tuple[int, int, int, int]) -> list[SegmentHeader]:
    """Headers of (epoch, base, previous epoch, previous end)."""
    return [SegmentHeader(LOG_ID, *segment, 0) for segment in segments]


@pytest.mark.parametrize(
    ("covered", "gone"),
    [
        (0, []),
        (9, []),
        (10, [(1, 0)]),
        (19, [(1, 0)]),
        (20, [(1, 0), (1, 10), (1, 25), (2, 20)]),
        (29, [(1, 0), (1, 10), (1, 25), (2, 20)]),
        (30, [(1, 0), (1, 10), (3, 20), (1, 25), (2, 20)]),
        (10**9, [(1, 0), (1, 10), (3, 20), (1, 25), (2, 20)]),
    ],
)
def test_segments_that_every_snapshot_covers(covered: int, gone: list[tuple[int, int]]) -> None:
    headers = headers_of((1, 0, 0, 0), (1, 10, 0, 0), (1, 25, 0, 0), (2, 20, 1, 20), (3, 20, 1, 20), (4, 30, 3, 30))
    plan = outline(headers, "log")
    counted = [(segment.header.epoch, segment.header.base) for segment in plan.counted]
    assert counted == [(1, 0), (1, 10), (3, 20), (4, 30)]
    assert [(header.epoch, header.base) for header in removable(plan, covered)] == gone
