"""Goal: a range of ids has one owner, for ever, whoever claims at the same time and whatever the storage answers.

Method: claims over a local folder and memory; faults around the one put of a claim; others that are faster, planted
between its listing and its put; many threads; near misses of every invariant.
tests/stelae/ownership/test_protocol_simulation.py plays claims together with owners.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.errors import AlreadyExists, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.ownership.id_claims import (
    BIGINT_LIMIT,
    INT_LIMIT,
    Claim,
    IdRange,
    Purpose,
    TableClaims,
    check_claim,
    check_claims_are_dense,
    check_claims_are_disjoint,
    decode_claim,
    encode_claim,
)
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.paths import CLAIM_FOLDER, claim_path
from stelae.storage.sealed_json import open_sealed_json, seal_json
from tests.faults import FaultyStorage
from tests.tables import all_claims

CLAIM = Claim(12, IdRange(812346, 912345), "server-a", 3, "online", "0" * 32, 1795000000123)

GOLDEN = b"""{
  "format": 1,
  "number": 12,
  "first": 812346,
  "last": 912345,
  "owner": "server-a",
  "epoch": 3,
  "purpose": "online",
  "attempt_id": "00000000000000000000000000000000",
  "created_ms": 1795000000123,
  "checksum": "xxh3-128:0a4ff8b12e9b14e3f9eff1b494dcd5ff"
}
"""


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(tmp_path / "uids") if request.param == "local" else MemoryStorage())


@pytest.fixture
def claims(storage: FaultyStorage) -> TableClaims:
    return TableClaims(storage, INT_LIMIT, clock=lambda: 1795000000.123)


def take(claims: TableClaims, count: int = 10, owner: str = "a", purpose: Purpose = "online") -> IdRange:
    return claims.claim(count, owner=owner, epoch=1, purpose=purpose).ids


def stored(claims: TableClaims) -> list[tuple[int, int]]:
    return [(claim.ids.first, claim.ids.last) for claim in all_claims(claims)]


# Claiming


def test_ranges_follow_each_other_from_1(claims: TableClaims) -> None:
    assert claims.newest() is None
    assert all_claims(claims) == []
    assert [take(claims, count) for count in (5, 1, 100_000)] == [IdRange(1, 5), IdRange(6, 6), IdRange(7, 100_006)]
    assert stored(claims) == [(1, 5), (6, 6), (7, 100_006)]
    newest = claims.newest()
    assert newest == claims.read(2)
    assert newest.ids.count == 100_000


def test_what_a_claim_says(claims: TableClaims, storage: FaultyStorage) -> None:
    claim = claims.claim(3, owner="nightly", epoch=7, purpose="build")
    assert replace(claim, attempt_id="x") == Claim(0, IdRange(1, 3), "nightly", 7, "build", "x", 1795000000123)
    assert decode_claim(storage.get("auto-increment/claim-000000000000.json"), "there") == claim


def test_a_claim_is_one_listing_one_read_one_put(claims: TableClaims, storage: FaultyStorage) -> None:
    take(claims)
    storage.calls.clear()
    take(claims)
    assert storage.calls == [("list", CLAIM_FOLDER), ("get", claim_path(0)), ("put_if_absent", claim_path(1))]


def test_foreign_files_are_no_claims(claims: TableClaims, storage: FaultyStorage) -> None:
    for name in ("claim-7.json", "claim-000000000007.json.bak", "README"):
        storage.put_if_absent(f"{CLAIM_FOLDER}/{name}", b"")
    assert take(claims) == IdRange(1, 10)


@pytest.mark.parametrize("count", [0, -1])
def test_at_least_one_id(claims: TableClaims, count: int) -> None:
    with pytest.raises(InvalidRequest):
        take(claims, count)
    assert all_claims(claims) == []


# Others


def test_a_taken_range_is_passed_over(claims: TableClaims, storage: FaultyStorage) -> None:
    """Two others are faster, one after the other, between the listing and the put."""
    other = TableClaims(storage.inner, INT_LIMIT)
    take(claims)
    storage.before("put_if_absent", lambda: take(other, 7, "b"))
    storage.before("put_if_absent", lambda: take(other, 1, "b"), nth=2)
    assert take(claims) == IdRange(19, 28)
    assert [(claim.owner, claim.ids.count) for claim in all_claims(claims)] == [
        ("a", 10),
        ("b", 7),
        ("b", 1),
        ("a", 10),
    ]


def test_many_threads(claims: TableClaims) -> None:
    with ThreadPoolExecutor(8) as pool:
        ranges = list(pool.map(lambda n: take(claims, n % 7 + 1, f"owner {n}"), range(40)))
    assert sorted((ids.first, ids.last) for ids in ranges) == stored(claims)
    for number, ids in enumerate(ranges):
        assert ids.count == number % 7 + 1
        assert [claim.ids for claim in all_claims(claims) if claim.owner == f"owner {number}"] == [ids]


# Answers that get lost


def test_a_lost_answer_counts_once(claims: TableClaims, storage: FaultyStorage) -> None:
    storage.lose_answer("put_if_absent")
    assert take(claims) == IdRange(1, 10)
    assert stored(claims) == [(1, 10)]


def test_a_transport_that_repeats_a_put_counts_once(claims: TableClaims, storage: FaultyStorage) -> None:
    """Object stores repeat a put whose answer got lost, and then find the name taken."""
    put = storage.inner.put_if_absent

    def twice(path: str, data: bytes) -> None:
        put(path, data)
        raise AlreadyExists("the name is taken")

    storage.inner.put_if_absent = twice  # type: ignore[method-assign]
    assert take(claims) == IdRange(1, 10)
    assert stored(claims) == [(1, 10)]


def test_a_lost_answer_to_a_put_that_came_second(claims: TableClaims, storage: FaultyStorage) -> None:
    storage.before("put_if_absent", lambda: take(TableClaims(storage.inner, INT_LIMIT), 4, "b"))
    storage.fail("put_if_absent")
    assert take(claims) == IdRange(5, 14)


def test_an_unknown_outcome_grants_nothing(claims: TableClaims, storage: FaultyStorage) -> None:
    storage.fail("put_if_absent")
    with pytest.raises(Unavailable, match="not known whether ids 1 to 10 were claimed") as refused:
        take(claims)
    assert refused.value.hint is not None
    assert all_claims(claims) == []
    assert take(claims) == IdRange(1, 10)


def test_a_claim_that_lands_late_stays_unused(claims: TableClaims, storage: FaultyStorage) -> None:
    """The put of the first attempt happens just before that of the second."""
    storage.lose_answer("put_if_absent")
    storage.fail("get")
    with pytest.raises(Unavailable):
        take(claims)
    assert take(claims) == IdRange(11, 20)
    assert stored(claims) == [(1, 10), (11, 20)]


@pytest.mark.parametrize("operation", ["list", "get"])
def test_storage_out_of_reach_claims_nothing(claims: TableClaims, storage: FaultyStorage, operation: str) -> None:
    take(claims)
    storage.fail(operation)
    with pytest.raises(Unavailable):
        take(claims)
    assert stored(claims) == [(1, 10)]


def test_a_torn_put_leaves_nothing(claims: TableClaims, storage: FaultyStorage) -> None:
    storage.tear("put_if_absent")
    with pytest.raises(Unavailable):
        take(claims)
    assert all_claims(claims) == []
    assert take(claims) == IdRange(1, 10)


# The end of the column


@pytest.mark.parametrize("limit", [INT_LIMIT, BIGINT_LIMIT, 25])
def test_online_claims_are_cut_at_the_limit(storage: FaultyStorage, limit: int) -> None:
    claims = TableClaims(storage, limit)
    take(claims, limit - 5)
    assert take(claims, 100) == IdRange(limit - 4, limit)
    with pytest.raises(InvalidRequest, match=f"all ids are used up: the column ends at {limit:,}"):
        take(claims, 1)
    assert len(all_claims(claims)) == 2


def test_a_build_gets_all_of_its_ids_or_none(storage: FaultyStorage) -> None:
    claims = TableClaims(storage, 25)
    take(claims, 20, purpose="build")
    with pytest.raises(InvalidRequest, match="5 ids are left, 6 are needed") as refused:
        take(claims, 6, purpose="build")
    assert "nothing was claimed" in str(refused.value)
    assert take(claims, 5, purpose="build") == IdRange(21, 25)
    with pytest.raises(InvalidRequest, match="all ids are used up"):
        take(claims, 1, purpose="build")


# What is stored


def test_golden_bytes() -> None:
    data = encode_claim(CLAIM)
    assert data == GOLDEN
    assert decode_claim(data, "there") == CLAIM


@given(st.integers(1, 2**63 - 1), st.integers(0, 10**6), st.text(min_size=1, max_size=9), st.integers(0, 2**53))
def test_any_claim_is_read_back(first: int, count: int, owner: str, now: int) -> None:
    ids = IdRange(first, min(first + count, BIGINT_LIMIT))
    claim = replace(CLAIM, number=0 if first == 1 else 5, ids=ids, owner=owner, created_ms=now)
    assert decode_claim(encode_claim(claim), "there") == claim


@pytest.mark.parametrize(
    "change",
    [
        {"ids": IdRange(5, 4)},
        {"ids": IdRange(0, 4)},
        {"ids": IdRange(1, 4)},
        {"ids": IdRange(5, 2**63)},
        {"number": 0},
        {"number": -1},
        {"owner": ""},
        {"attempt_id": ""},
        {"epoch": 0},
        {"epoch": True},
        {"purpose": "offline"},
        {"created_ms": -1},
        {"created_ms": 1.5},
        {"format": 2},
    ],
    ids=str,
)
def test_what_is_no_claim_is_not_written(change: dict[str, object]) -> None:
    with pytest.raises(CorruptData, match=r"claim|format"):
        encode_claim(replace(CLAIM, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize("change", [{"first": 912346}, {"purpose": "offline"}, {"epoch": 0}, {"number": 0}])
def test_what_is_no_claim_is_not_read(change: dict[str, object]) -> None:
    body = open_sealed_json(encode_claim(CLAIM), "here")
    with pytest.raises(CorruptData) as refused:
        decode_claim(seal_json({**body, **change}), "there")
    assert refused.value.place == "there"


def test_a_changed_byte_is_found(claims: TableClaims, storage: FaultyStorage) -> None:
    take(claims)
    data = bytearray(storage.get(claim_path(0)))
    data[40] ^= 1
    storage.delete(claim_path(0))
    storage.put_if_absent(claim_path(0), bytes(data))
    for call in (lambda: all_claims(claims), claims.newest, lambda: take(claims)):
        with pytest.raises(CorruptData, match=r"claim-000000000000\.json"):
            call()


def test_a_claim_under_another_number_is_refused(claims: TableClaims, storage: FaultyStorage) -> None:
    storage.put_if_absent(claim_path(3), encode_claim(CLAIM))
    with pytest.raises(CorruptData, match="the file holds claim 12"):
        take(claims)


def test_a_claim_above_the_limit_is_refused(storage: FaultyStorage) -> None:
    take(TableClaims(storage, INT_LIMIT), 26)
    with pytest.raises(CorruptData, match="the column ends at 25"):
        take(TableClaims(storage, 25))


def test_a_claim_that_lacks_is_noticed(claims: TableClaims, storage: FaultyStorage) -> None:
    for _ in range(3):
        take(claims)
    storage.delete(claim_path(1))
    with pytest.raises(CorruptData, match="expected claim 1"):
        all_claims(claims)
    with pytest.raises(NotFound):
        claims.read(1)


# Invariants of all claims


def some(*ranges: tuple[int, int, int]) -> list[Claim]:
    return [replace(CLAIM, number=number, ids=IdRange(first, last)) for number, first, last in ranges]


GOOD = [(0, 1, 5), (1, 6, 6), (2, 7, 9)]


def test_good_claims_in_any_order() -> None:
    for claims in (some(*GOOD), some(*reversed(GOOD)), []):
        check_claims_are_disjoint(claims, "here")
        check_claims_are_dense(claims, "here")
        for claim in claims:
            check_claim(claim, "here")
    assert 5 in IdRange(1, 5)
    assert 6 not in IdRange(1, 5)
    assert 0 not in IdRange(1, 5)


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ([(0, 1, 5), (1, 5, 6)], "claims 0 (1 to 5) and 1 (5 to 6) have ids in common"),
        ([(1, 5, 6), (0, 1, 5)], "claims 0 (1 to 5) and 1 (5 to 6)"),
        ([(0, 1, 9), (1, 3, 4)], "claims 0 (1 to 9) and 1 (3 to 4)"),
        ([(0, 1, 9), (1, 3, 4), (2, 10, 11)], "claims 0 (1 to 9) and 1 (3 to 4)"),
        ([(0, 1, 5), (1, 1, 5)], "claims 0 (1 to 5) and 1 (1 to 5)"),
    ],
)
def test_claims_with_ids_in_common(ranges: list[tuple[int, int, int]], told: str) -> None:
    refused = refusal(check_claims_are_disjoint, some(*ranges))
    assert told in refused.message
    assert refused.place == "here"


@pytest.mark.parametrize(
    ("ranges", "told"),
    [
        ([(0, 1, 5), (1, 7, 9)], "claim 1 starts at id 7; expected claim 1 at id 6"),
        ([(0, 1, 5), (2, 6, 9)], "claim 2 starts at id 6; expected claim 1 at id 6"),
        ([(0, 1, 5), (1, 4, 9)], "claim 1 starts at id 4; expected claim 1 at id 6"),
        ([(0, 2, 5)], "claim 0 starts at id 2; expected claim 0 at id 1"),
        ([(1, 1, 5)], "claim 1 starts at id 1; expected claim 0 at id 1"),
        ([(0, 1, 5), (0, 6, 9)], "claim 0 starts at id 6; expected claim 1 at id 6"),
    ],
)
def test_claims_with_gaps(ranges: list[tuple[int, int, int]], told: str) -> None:
    assert told in refusal(check_claims_are_dense, some(*ranges)).message


@given(st.permutations(GOOD), st.integers(0, 2), st.integers(-3, 3).filter(bool), st.booleans())
def test_any_moved_end_is_noticed(ranges: list[tuple[int, int, int]], which: int, by: int, first: bool) -> None:
    moved = [
        (n, a + by * first, b + by * (not first)) if n == which else (n, a, b)
        for n, a, b in ranges
        if n != which or a + by * first <= b + by * (not first)
    ]
    end_of_all = which == 2 and not first
    if len(moved) == len(ranges) and not end_of_all:
        refusal(check_claims_are_dense, some(*moved))


def refusal(check: Callable[[list[Claim], str], None], claims: list[Claim]) -> CorruptData:
    with pytest.raises(CorruptData) as refused:
        check(claims, "here")
    return refused.value
