"""How lookups from Spark ask a server: the options of `lookup_join`, `lookup` and `register`, each declared once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stelae.declared_options import declared, option
from stelae.errors import InvalidRequest
from stelae.spark.stats import LookupStats
from stelae.units import MIB


@dataclass(frozen=True)
class LookupOptions:
    """docs/spark.md has the table of these. A key column of such a name needs `lookup_join`."""

    snapshot: int | None = option(
        None, "The number of the one to read; by default the server's newest when the lookup is made."
    )
    batch_size: int = option(
        10_000,
        "Keys of a request. More need a server with a larger `--max-batch-keys`.",
        unit="keys",
        shown="10,000",
        least=1,
    )
    max_in_flight: int = option(3, "Requests of a task that are under way at a time.", unit="requests", least=1)
    cache_bytes: int = option(
        256 * MIB,
        "Memory of a worker for what it remembers; a full cache starts again, empty. 0: nothing is remembered beyond a "
        "request.",
        unit="bytes",
        shown="256 MiB",
        least=0,
    )
    timeout_s: float = option(30.0, "How long to wait for one answer.", unit="seconds")
    deadline_s: float = option(120.0, "How long a request is repeated while no server can answer it.", unit="seconds")
    headers: Mapping[str, str] | None = option(None, "Sent with every request, such as `Authorization`.")
    stats: LookupStats | None = option(None, "A `LookupStats`, which counts.")

    def __post_init__(self) -> None:
        for each in declared(LookupOptions):
            value = getattr(self, each.name)
            if each.least is None:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < each.least:
                raise InvalidRequest(
                    f"{each.name} is an integer of at least {each.least}, not {value!r}", place=each.name
                )
        if self.stats is not None and not isinstance(self.stats, LookupStats):
            raise InvalidRequest(
                f"stats is a LookupStats, not {self.stats!r}", place="stats", hint="stats = LookupStats()"
            )


LOOKUP_OPTIONS = tuple(each.name for each in declared(LookupOptions))
