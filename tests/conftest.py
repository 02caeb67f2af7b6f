"""One Spark session for the whole suite, one place for scratch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.load_profile("default")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small, quick session: light compilation, few partitions, the shared defaults otherwise."""
    from stelae.builder.local.session import local_session

    folder = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(folder / "local"))
    session = local_session(
        cores=2,
        memory="1g",
        settings={
            "spark.sql.shuffle.partitions": "4",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        },
    )
    yield session
    session.stop()
