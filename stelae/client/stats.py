"""What a client has done so far."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientStats:
    """Counts of a client, from its start. A call that is under way counts with what it has done."""

    requests: int
    """Sent, repetitions included."""
    retries: int
    """Repetitions among them."""
    withheld: int
    """Repetitions that were not made because the budget of the client was used up."""
    keys: int
    """Keys and prefixes that were asked for or inserted, each once."""
    bytes_sent: int
    """Of bodies."""
    bytes_received: int
    """Of bodies."""


class Counters:
    """The counts in the making. Threads add to them without a lock: one may get lost, never more than that."""

    __slots__ = ("bytes_received", "bytes_sent", "keys", "requests", "retries", "withheld")

    def __init__(self) -> None:
        self.requests = self.retries = self.withheld = self.keys = self.bytes_sent = self.bytes_received = 0

    def snapshot(self) -> ClientStats:
        return ClientStats(self.requests, self.retries, self.withheld, self.keys, self.bytes_sent, self.bytes_received)
