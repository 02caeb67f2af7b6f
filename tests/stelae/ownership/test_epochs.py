"""Goal: a table has one owner at a time, and a former one learns of it.

Method: epochs over a local folder and memory; faults around the one put of an epoch; others that are faster; many
threads; near misses of every invariant. tests/stelae/ownership/test_protocol_simulation.py plays what owners do with
it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stelae.errors import Conflict, CorruptData, InvalidRequest, NotFound, Unavailable
from stelae.ownership.epochs import (
    Epoch,
    TableOwnership,
    check_epochs_are_gapless,
    decode_epoch,
    encode_epoch,
)
from stelae.storage.local import LocalStorage
from stelae.storage.memory import MemoryStorage
from stelae.storage.paths import EPOCH_FOLDER, epoch_path
from stelae.storage.sealed_json import open_sealed_json, seal_json
from tests.faults import FaultyStorage
from tests.tables import all_epochs

TABLE = "shop.uids"
URL = "http://10.0.0.7:8000"
EPOCH = Epoch(TABLE, 7, "server", "server-a", URL, "0" * 32, 1795000000123, "asked to")

GOLDEN = b"""{
  "format": 1,
  "table": "shop.uids",
  "number": 7,
  "kind": "server",
  "owner": "server-a",
  "url": "http://10.0.0.7:8000",
  "attempt_id": "00000000000000000000000000000000",
  "taken_ms": 1795000000123,
  "note": "asked to",
  "checksum": "xxh3-128:682fc255562955824a6be619d93f3864"
}
"""


@pytest.fixture(params=["local", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> FaultyStorage:
    return FaultyStorage(LocalStorage(tmp_path / "uids") if request.param == "local" else MemoryStorage())


@pytest.fixture
def ownership(storage: FaultyStorage) -> TableOwnership:
    return TableOwnership(storage, TABLE, clock=lambda: 1795000000.123)


def other(storage: FaultyStorage) -> TableOwnership:
    """Somebody who meets no faults."""
    return TableOwnership(storage.inner, TABLE)


# Taking and releasing


def test_a_table_without_an_owner(ownership: TableOwnership) -> None:
    assert ownership.current() is None
    assert all_epochs(ownership) == []


def test_epochs_follow_each_other(ownership: TableOwnership, storage: FaultyStorage) -> None:
    first = ownership.take("server", "a", URL, after=None, note="started")
    assert replace(first, attempt_id="x") == Epoch(TABLE, 1, "server", "a", URL, "x", 1795000000123, "started")
    assert ownership.current() == first
    assert ownership.still_holds(first)
    second = ownership.take("build", "nightly", after=first)
    assert (second.number, second.kind, second.url) == (2, "build", None)
    assert ownership.current() == second
    assert not ownership.still_holds(first)
    assert ownership.still_holds(second)
    assert ownership.release(second, note="done")
    third = ownership.current()
    assert third is not None
    assert (third.number, third.kind, third.owner, third.note) == (3, "free", "nightly", "done")
    assert all_epochs(ownership) == [first, second, third]
    assert decode_epoch(storage.get("owner/epoch-000003.json"), "there") == third


def test_the_check_after_a_flush_is_one_request(ownership: TableOwnership, storage: FaultyStorage) -> None:
    epoch = ownership.take("server", "a", URL, after=None)
    storage.calls.clear()
    assert ownership.still_holds(epoch)
    assert storage.calls == [("head", "owner/epoch-000002.json")]


def test_storage_out_of_reach_is_no_answer(ownership: TableOwnership, storage: FaultyStorage) -> None:
    epoch = ownership.take("server", "a", URL, after=None)
    storage.fail("head")
    with pytest.raises(Unavailable):
        ownership.still_holds(epoch)


def test_foreign_files_are_no_epochs(ownership: TableOwnership, storage: FaultyStorage) -> None:
    for name in ("epoch-7.json", "epoch-000007.json.bak", "README"):
        storage.put_if_absent(f"{EPOCH_FOLDER}/{name}", b"")
    assert ownership.current() is None


def test_epochs_outgrow_six_digits(ownership: TableOwnership, storage: FaultyStorage) -> None:
    last = replace(EPOCH, number=999_999)
    storage.put_if_absent(epoch_path(999_999), encode_epoch(last))
    taken = ownership.take("server", "b", URL, after=last)
    assert ownership.current() == taken
    assert not ownership.still_holds(last)


# Others


def test_a_taken_epoch_names_its_owner(ownership: TableOwnership, storage: FaultyStorage) -> None:
    first = ownership.take("server", "a", URL, after=None)
    other(storage).take("server", "b", "http://b:1", after=first)
    with pytest.raises(
        Conflict, match=r"epoch 2 of shop\.uids was taken by server 'b' at http://b:1, so 'c' cannot take it"
    ) as refused:
        ownership.take("build", "c", after=first)
    assert refused.value.hint is not None
    assert len(all_epochs(ownership)) == 2


def test_a_released_epoch_is_taken_from_there(ownership: TableOwnership) -> None:
    first = ownership.take("server", "a", URL, after=None)
    assert ownership.release(first)
    with pytest.raises(Conflict, match=r"epoch 2 of shop\.uids is taken: released by 'a'"):
        ownership.take("server", "b", URL, after=first)
    assert ownership.take("server", "b", URL, after=ownership.current()).number == 3


def test_releasing_what_somebody_took_over(ownership: TableOwnership) -> None:
    first = ownership.take("server", "a", URL, after=None)
    second = ownership.take("server", "b", URL, after=first)
    assert not ownership.release(first)
    assert ownership.current() == second


def test_the_same_owner_taking_twice_is_not_itself(ownership: TableOwnership) -> None:
    """Two processes with one name: the second one does not take the first one's epoch for its own."""
    ownership.take("server", "a", URL, after=None)
    with pytest.raises(Conflict, match="taken by server 'a'"):
        ownership.take("server", "a", URL, after=None)


def test_of_many_one_gets_it(ownership: TableOwnership) -> None:
    first = ownership.take("server", "a", URL, after=None)

    def attempt(number: int) -> Epoch | None:
        try:
            return ownership.take("server", f"s{number}", URL, after=first)
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        taken = [epoch for epoch in pool.map(attempt, range(16)) if epoch]
    assert taken == [ownership.current()]


# Answers that get lost


def test_a_lost_answer_counts_once(ownership: TableOwnership, storage: FaultyStorage) -> None:
    storage.lose_answer("put_if_absent")
    epoch = ownership.take("server", "a", URL, after=None)
    assert all_epochs(ownership) == [epoch]
    storage.lose_answer("put_if_absent")
    assert ownership.release(epoch)
    assert [epoch.kind for epoch in all_epochs(ownership)] == ["server", "free"]


def test_a_lost_answer_to_a_put_that_came_second(ownership: TableOwnership, storage: FaultyStorage) -> None:
    storage.before("put_if_absent", lambda: other(storage).take("server", "b", URL, after=None))
    storage.fail("put_if_absent")
    with pytest.raises(Conflict, match="taken by server 'b'"):
        ownership.take("server", "a", URL, after=None)


@pytest.mark.parametrize("landed", [False, True])
def test_an_unknown_outcome(ownership: TableOwnership, storage: FaultyStorage, landed: bool) -> None:
    if landed:
        storage.lose_answer("put_if_absent")
        storage.fail("get")
    else:
        storage.fail("put_if_absent")
    with pytest.raises(Unavailable, match=r"not known whether epoch 1 of shop\.uids was taken"):
        ownership.take("server", "a", URL, after=None)
    current = ownership.current()
    assert (current is not None) == landed
    assert ownership.take("server", "a", URL, after=current).number == 1 + landed


# Builds that may still commit


@pytest.mark.parametrize(
    ("kinds", "segment_epoch", "expected"),
    [
        ("", 0, None),
        ("s", 0, None),
        ("sf", 0, None),
        ("b", 0, 1),
        ("bf", 0, None),
        ("bs", 0, 1),
        ("bss", 0, 1),
        ("bfs", 0, None),
        ("bsb", 0, 3),
        ("bsbf", 0, None),
        ("bs", 2, None),
        ("bss", 2, None),
        ("bss", 1, 1),
        ("sb", 2, 2),
        ("sb", 1, 2),
        ("bsb", 2, 3),
        ("bs", 9, None),
    ],
)
def test_unfinished_build(ownership: TableOwnership, kinds: str, segment_epoch: int, expected: int | None) -> None:
    """Kinds of former epochs by their first letters; the newest log segment; the build that has to be fenced."""
    epoch = None
    for letter in kinds + "s":
        kind = {"s": "server", "b": "build", "f": "free"}[letter]
        epoch = ownership.take(kind, letter, URL if letter == "s" else None, after=epoch)  # type: ignore[arg-type]
    assert epoch is not None
    found = ownership.unfinished_build(epoch, segment_epoch=segment_epoch)
    assert (found and found.number) == expected


# What is stored


def test_golden_bytes() -> None:
    data = encode_epoch(EPOCH)
    assert data == GOLDEN
    assert decode_epoch(data, "there") == EPOCH
    assert str(EPOCH) == "server 'server-a' at http://10.0.0.7:8000"


@given(st.integers(1, 2**63 - 1), st.sampled_from(["server", "build", "free"]), st.text(min_size=1), st.text())
def test_any_epoch_is_read_back(number: int, kind: str, owner: str, note: str) -> None:
    epoch = replace(
        EPOCH,
        number=number,
        kind=kind,  # type: ignore[arg-type]
        owner=owner,
        url=URL if kind == "server" else None,
        note=note,
    )
    assert decode_epoch(encode_epoch(epoch), "there") == epoch


@pytest.mark.parametrize(
    "change",
    [
        {"number": 0},
        {"number": 2**63},
        {"kind": "owner"},
        {"kind": "free"},
        {"url": None},
        {"url": ""},
        {"owner": ""},
        {"table": ""},
        {"attempt_id": ""},
        {"taken_ms": -1},
        {"taken_ms": 0.5},
        {"note": None},
        {"format": 2},
    ],
    ids=str,
)
def test_what_is_no_epoch_is_not_written(ownership: TableOwnership, change: dict[str, object]) -> None:
    with pytest.raises(CorruptData):
        encode_epoch(replace(EPOCH, **change))  # type: ignore[arg-type]


def test_a_server_has_a_url_and_others_have_none(ownership: TableOwnership) -> None:
    with pytest.raises(CorruptData, match="of kind server has the URL None"):
        ownership.take("server", "a", after=None)
    with pytest.raises(CorruptData, match="of kind build has the URL"):
        ownership.take("build", "a", URL, after=None)
    assert all_epochs(ownership) == []


def test_epochs_of_another_table(ownership: TableOwnership) -> None:
    with pytest.raises(InvalidRequest, match=r"an epoch of shop\.users is no epoch of shop\.uids"):
        ownership.take("server", "a", URL, after=replace(EPOCH, table="shop.users"))


@pytest.mark.parametrize("change", [{"kind": "owner"}, {"number": 0}, {"url": None}, {"owner": ""}])
def test_what_is_no_epoch_is_not_read(change: dict[str, object]) -> None:
    body = open_sealed_json(encode_epoch(EPOCH), "here")
    with pytest.raises(CorruptData) as refused:
        decode_epoch(seal_json({**body, **change}), "there")
    assert refused.value.place == "there"


def test_an_epoch_under_another_number_is_refused(ownership: TableOwnership, storage: FaultyStorage) -> None:
    storage.put_if_absent(epoch_path(3), encode_epoch(EPOCH))
    with pytest.raises(CorruptData, match="the file holds epoch 7"):
        ownership.current()


def test_an_epoch_that_lacks_is_noticed(ownership: TableOwnership, storage: FaultyStorage) -> None:
    epoch = None
    for _ in range(3):
        epoch = ownership.take("server", "a", URL, after=epoch)
    storage.delete(epoch_path(2))
    with pytest.raises(CorruptData, match="expected epoch 2"):
        all_epochs(ownership)
    with pytest.raises(NotFound):
        ownership.read(2)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ([1, 3], "expected epoch 2, found epoch 3"),
        ([2], "expected epoch 1, found epoch 2"),
        ([1, 2, 2], "expected epoch 3, found epoch 2"),
    ],
)
def test_epochs_with_gaps(numbers: list[int], told: str) -> None:
    check_epochs_are_gapless([replace(EPOCH, number=number) for number in (2, 1, 3)], "here")
    check_epochs_are_gapless([], "here")
    with pytest.raises(CorruptData, match=told):
        check_epochs_are_gapless([replace(EPOCH, number=number) for number in numbers], "here")
