"""`lookup_join`: a DataFrame with the columns of a table added, looked up at a tablet server.

    frame ──key columns, in Arrow batches──► Python workers ──► tablet server
      │                                           │
      └── all other columns stay in the JVM ──────┴──► frame with the table's columns

No shuffle, no sort, and nothing of the frame but its keys leaves the JVM: an Arrow UDF on the key columns gives a
struct of the table's, whose fields become columns then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.spark.column_types import key_argument
from stelae.spark.lookup_plan import plan_lookup, spark_function
from stelae.spark.options import LookupOptions
from stelae.spark.stats import LookupStats

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from stelae.schema.table_schema import Column

JOINED_ROW_COLUMN = "__stelae_row"


def lookup_join(
    df: DataFrame,
    table: str,
    on: str | Sequence[str] | Mapping[str, str | SparkColumn],
    url: str | Sequence[str],
    columns: Sequence[str] | None = None,
    how: Literal["left", "inner"] = "left",
    prefix: bool = False,
    insert_if_not_exists: bool = False,
    *,
    rename: Mapping[str, str] | None = None,
    snapshot: int | None = LookupOptions.snapshot,
    batch_size: int = LookupOptions.batch_size,
    max_in_flight: int = LookupOptions.max_in_flight,
    cache_bytes: int = LookupOptions.cache_bytes,
    timeout_s: float = LookupOptions.timeout_s,
    deadline_s: float = LookupOptions.deadline_s,
    headers: Mapping[str, str] | None = LookupOptions.headers,
    stats: LookupStats | None = LookupOptions.stats,
) -> DataFrame:
    """The frame with columns of a table behind its own: those of the row that has the same key.

        lookup_join(orders, "shop.users", on={"user_id": "buyer"}, url="http://tablets:8000", columns=["city"])

    `on`: the primary-key columns, by one name, a list of names, or as a mapping {key column: column of the frame}; with
    `prefix` the first of them, and every row of the table that starts so gives a row. `how`: "left" keeps rows without
    a match, with nulls, "inner" drops them. A null matches nothing, except in a nullable key column, where it is a
    value like others. `columns`: those of the table to add, by default all that are not in `on`. `rename` gives them
    other names where the frame has the same.

    `url`: a tablet server, or several that serve the same warehouse. All rows come from one snapshot, the server's
    newest when this function is called, or `snapshot`. With `insert_if_not_exists` keys that are not there are
    inserted, with ids where the table mints them; then rows are the newest, and each key is there.

    Each Python worker asks for a key once, in requests of `batch_size` keys with at most `max_in_flight` under way, and
    remembers up to `cache_bytes` of answers (0: none beyond a request); full, it starts again. `timeout_s` bounds the
    wait for one answer. While the server is away a request is repeated, for `deadline_s`. `headers` go with every
    request. `stats` counts.

    Nothing is asked for before an action runs, but the table's definition. Errors are those of `stelae.errors`.
    """
    _check_frame(df)
    if how not in ("left", "inner"):
        raise InvalidRequest(f"how is 'left' or 'inner', not {how!r}", place="how")
    _check_batches(df)
    given = _pairs(on)
    arguments = {name: _column_of(df, value) for name, value in given.items()}
    options = LookupOptions(
        snapshot=snapshot,
        batch_size=batch_size,
        max_in_flight=max_in_flight,
        cache_bytes=cache_bytes,
        timeout_s=timeout_s,
        deadline_s=deadline_s,
        headers=headers,
        stats=stats,
    )
    lookup = plan_lookup(table, list(given), url, columns, options, prefix=prefix, insert=insert_if_not_exists)
    names = _new_names(df, lookup.columns, rename or {})
    types = [field.dataType for field in df.select(*arguments.values()).schema.fields]
    keys = [
        key_argument(column, arguments[column.name], spark_type, _shown(given[column.name]))
        for column, spark_type in zip(lookup.on, types, strict=True)
    ]
    return _joined(df, spark_function(lookup)(*keys), lookup.columns, names, how, prefix)


def _joined(
    df: DataFrame, looked_up: SparkColumn, columns: Sequence[Column], names: Sequence[str], how: str, prefix: bool
) -> DataFrame:
    from pyspark.sql import functions as f

    own = df.select("*", looked_up.alias(JOINED_ROW_COLUMN))
    if prefix:
        one_row = f"{JOINED_ROW_COLUMN}s"
        explode = f.explode if how == "inner" else f.explode_outer
        own = own.select("*", explode(JOINED_ROW_COLUMN).alias(one_row)).drop(JOINED_ROW_COLUMN)
        own = own.withColumnRenamed(one_row, JOINED_ROW_COLUMN)
    elif how == "inner":
        own = own.where(f.col(JOINED_ROW_COLUMN).isNotNull())
    added = [
        f.col(JOINED_ROW_COLUMN).getField(column.name).cast(column.type.spark()).alias(name)
        for column, name in zip(columns, names, strict=True)
    ]
    return own.select("*", *added).drop(JOINED_ROW_COLUMN)


def _check_frame(df: Any) -> None:
    if not hasattr(df, "isStreaming"):
        kind = f"{type(df).__module__.split('.')[0]}.{type(df).__name__}"
        raise InvalidRequest(f"{kind} is no frame of Spark", place="df", hint="spark.createDataFrame(frame)")


def _check_batches(df: DataFrame) -> None:
    """Spark 4.3 evaluates an Arrow function on columnar input without end when batches have no limit."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    if int(df.sparkSession.conf.get(name) or 0) <= 0:
        raise InvalidRequest(
            "Spark never ends a lookup on columnar files while its Arrow batches have no limit",
            place=name,
            hint=f"spark.conf.set({name!r}, 10000)",
        )


def _pairs(on: Any) -> dict[str, Any]:
    """Key columns of the table, and what they are compared with."""
    if isinstance(on, str):
        return {on: on}
    if isinstance(on, Mapping):
        pairs = dict(on)
    elif isinstance(on, Sequence) and all(isinstance(name, str) for name in on):
        pairs = {name: name for name in on}
        if len(pairs) != len(on):
            raise InvalidRequest(f"on names a column twice: {', '.join(on)}", place="on")
    else:
        raise InvalidRequest(f"on is {on!r}", place="on", hint="a name, names, or {key column: column of the frame}")
    if not pairs:
        raise InvalidRequest("on is empty", place="on", hint="a name, names, or {key column: column of the frame}")
    return pairs


def _column_of(df: DataFrame, value: Any) -> SparkColumn:
    from pyspark.sql import functions as f

    if not isinstance(value, str):
        column: SparkColumn = value
        return column
    if value not in df.columns:
        raise InvalidRequest(
            f"the frame has no column {value}",
            place="on",
            hint=f"it has {', '.join(df.columns)}; under another name: on={{key column: column of the frame}}",
        )
    return f.col(t.quote_name(value))


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else str(value).removeprefix("Column<'").removesuffix("'>")


def _new_names(df: DataFrame, columns: Sequence[Column], rename: Mapping[str, str]) -> list[str]:
    """What the table's columns are called in the result."""
    known = [column.name for column in columns]
    unknown = [name for name in rename if name not in known]
    if unknown:
        raise InvalidRequest(
            f"rename is about {', '.join(unknown)}, which is not looked up", place="rename", hint=", ".join(known)
        )
    names = [rename.get(name, name) for name in known]
    # Spark takes names for the same that differ in case alone.
    taken = {name.lower() for name in df.columns}
    for index, name in enumerate(names):
        if name.lower() in taken:
            raise InvalidRequest(
                f"the result would have two columns {name}",
                place="columns",
                hint=f"rename={{{known[index]!r}: 'another_name'}}, or leave it out of columns",
            )
        taken.add(name.lower())
    return names
