"""A lookup as a column: `lookup` for withColumn and select, `register` for SQL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from stelae.declared_options import shows_options
from stelae.errors import InvalidRequest
from stelae.spark.lookup_plan import plan_lookup, spark_function
from stelae.spark.options import LOOKUP_OPTIONS, LookupOptions
from stelae.spark.servers import Servers

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import SparkSession


def lookup(table: str, columns: str | Sequence[str], *, url: str | Sequence[str], **keys: Any) -> SparkColumn:
    """A column of the row that has this key: null where there is none. Of a list of columns a struct.

        orders.withColumn("city", lookup("shop.users", "city", url=URL, user_id=col("buyer")))

    Every primary-key column is given as an argument of its name, a Spark column or the name of one. The options of
    `lookup_join` are taken too (`LookupOptions`). The types of the keys are checked when the job runs, for a column
    does not know its frame.
    """
    from pyspark.sql import functions as f

    options = LookupOptions(**{name: keys.pop(name) for name in LOOKUP_OPTIONS if name in keys})
    if not keys:
        raise InvalidRequest("no key columns", place=table, hint="lookup(table, column, url=..., user_id=col('id'))")
    function, on = _function(table, columns, url, list(keys), options)
    arguments = [f.col(keys[name]) if isinstance(keys[name], str) else keys[name] for name in on]
    column: SparkColumn = function(*arguments)
    return column


@shows_options(LookupOptions)
def register(
    spark: SparkSession,
    name: str,
    table: str,
    columns: str | Sequence[str],
    *,
    url: str | Sequence[str],
    **options: Any,
) -> None:
    """Make a lookup a SQL function of this session: `SELECT user_city(buyer) FROM orders`.

    Its arguments are the primary-key columns of the table, in their order. The snapshot is that of this moment:
    register again for a newer one. `options` are those of `lookup`.
    """
    unknown = [each for each in options if each not in LOOKUP_OPTIONS]
    if unknown:
        raise InvalidRequest(
            f"no option of register: {', '.join(unknown)}",
            place=name,
            hint=f"its options are {', '.join(LOOKUP_OPTIONS)}; key columns are the arguments in SQL, in their order",
        )
    function, _ = _function(table, columns, url, None, LookupOptions(**options))
    spark.udf.register(name, function)


def _function(
    table: str, columns: str | Sequence[str], url: str | Sequence[str], on: list[str] | None, options: LookupOptions
) -> tuple[Any, list[str]]:
    """The function, and the key columns that it takes: `on`, or the whole primary key."""
    if on is None:
        schema = Servers.of(url, options).describe(table).schema
        on = list(schema.primary_key) if schema is not None else []
    names = [columns] if isinstance(columns, str) else list(columns)
    plan = plan_lookup(table, on, url, names, options)
    return spark_function(replace(plan, single=isinstance(columns, str))), on
