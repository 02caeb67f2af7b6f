"""Steps of a build that run in Python: rows go to it and come back as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def map_batches(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], ddl: str
) -> DataFrame:
    """What a function makes of the batches of each task: rows with the columns that `ddl` says.

    About 30 round trips to the JVM, and two for each column of `frame`.
    """
    return frame.mapInArrow(function, _parsed(ddl))


@lru_cache(256)
def _parsed(ddl: str) -> StructType:
    """Columns as Spark reads them: it is asked once, not by each step of each build."""
    from pyspark.sql.types import StructType

    return cast("StructType", StructType.fromDDL(ddl))
