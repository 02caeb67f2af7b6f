"""What a lookup is about, decided on the driver: the table as a server has it, the snapshot, the columns.

The server is asked once, when the frame is made. So mistakes show there, and all tasks of all actions on the frame ask
for the same snapshot.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from stelae.errors import InvalidRequest, Unavailable
from stelae.names import TableName
from stelae.spark.column_types import key_columns, selected_columns, struct_ddl
from stelae.spark.errors import show_stelae_errors
from stelae.spark.lookup_task import LookupTask
from stelae.spark.options import LookupOptions
from stelae.spark.servers import Servers


def plan_lookup(
    table: str,
    on: Sequence[str],
    url: str | Sequence[str],
    columns: Sequence[str] | None,
    options: LookupOptions,
    *,
    prefix: bool = False,
    insert: bool = False,
) -> LookupTask:
    """The lookup, ready to travel."""
    from pyspark.sql.utils import is_remote

    show_stelae_errors()
    snapshot = options.snapshot
    if insert and prefix:
        raise InvalidRequest("insert_if_not_exists takes whole keys, not prefixes", place="prefix")
    if insert and snapshot is not None:
        raise InvalidRequest("inserts are answered from the newest rows, not from a snapshot", place="snapshot")
    name = str(TableName.parse(table))
    servers = Servers.of(url, options)
    info = servers.describe(name)
    schema = info.schema
    if schema is None:
        raise Unavailable(
            f"the server can't read the definition of table {name}",
            place=servers.urls[0],
            hint=f"it says: {info.details.get('error')}",
        )
    keys = key_columns(schema, on, name, prefix=prefix)
    if not insert and snapshot is None:
        snapshot = info.snapshot
        if snapshot is None:
            raise Unavailable(
                f"the server has no snapshot of table {name}: it is {info.state}",
                place=name,
                hint=str(info.details.get("error") or "build the table first, or wait until the server has loaded it"),
            )
    return LookupTask(
        servers=servers,
        table=name,
        snapshot=None if insert else snapshot,
        on=keys,
        columns=selected_columns(schema, columns, on, name),
        prefix=prefix,
        insert=insert,
        batch_size=options.batch_size,
        max_in_flight=options.max_in_flight,
        cache_bytes=options.cache_bytes,
        job=uuid4().hex,
        counts=None if options.stats is None else options.stats.accumulator(is_remote()),
    )


def spark_function(lookup: LookupTask) -> Any:
    """The lookup as a function on Spark columns, in the order of its key columns."""
    from pyspark.sql.pandas.functions import ArrowUDFType, arrow_udf

    columns = lookup.columns
    returns = struct_ddl(columns)
    if lookup.prefix:
        returns = f"array<{returns}>"
    elif lookup.single:
        returns = struct_ddl(columns)[len("struct<") : -1].partition(": ")[2]

    def stelae_lookup(batches: Any) -> Any:
        return lookup(batches)

    # Were it deterministic, a struct that is both filtered and selected from would be looked up twice.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark would like to find the kind of a function in type hints.
        function = arrow_udf(stelae_lookup, returnType=returns, functionType=ArrowUDFType.SCALAR_ITER)
    return function.asNondeterministic()
