"""For Spark jobs: DataFrames joined with a table by lookups at a tablet server, and tables read as DataFrames.

    from stelae.spark import lookup_join
    lookup_join(orders, "shop.users", on={"user_id": "buyer"}, url="http://tablets:8000", columns=["city"])

    spark.read.format("stelae").option("warehouse", "s3://...").load("shop.users")

docs/spark.md tells how. The names load on first use; nothing here imports PySpark before it is used. Builds
are not in here: this is what jobs use that look up and read, and what builds share with them. Read `join.py` first.

    options.py, servers.py             who is asked, and how
    join.py, lookup_function.py        what users call                         driver
    lookup_plan.py, column_types.py    table, snapshot and types, checked      driver
    lookup_task.py                     batches in, rows out                    Python workers
    answer_cache.py, key_index.py, append_column.py    what a worker remembers
    data_source.py, bucket_scan.py     spark.read.format("stelae")
    errors.py, stats.py                errors and counts on their way through Spark
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stelae.spark.data_source import register_source as register_source
    from stelae.spark.join import lookup_join as lookup_join
    from stelae.spark.lookup_function import lookup as lookup
    from stelae.spark.lookup_function import register as register
    from stelae.spark.stats import LookupStats as LookupStats

_HOMES = {
    "LookupStats": "stats",
    "lookup": "lookup_function",
    "lookup_join": "join",
    "register": "lookup_function",
    "register_source": "data_source",
}

__all__ = ["LookupStats", "lookup", "lookup_join", "register", "register_source"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"stelae.spark.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'stelae.spark' has no attribute {name!r}")
