"""One Spark session for the whole suite, one place for scratch, and which tests a run of this length has."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.length import is_chosen
from tests.light_session import LIGHT_SESSION

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGING = Path(__file__).parent / "builder" / "merge"

settings.register_profile(
    "default",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    print_blob=True,
)
settings.load_profile("default")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="tests that have a long form, in it (tests/length.py)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = [item for item in items if not is_chosen(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_chosen(item)]
    # Cases of merging come last: they build in several threads, and the other process of tests has ended by then.
    items.sort(key=lambda item: MERGING in item.path.parents)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small, quick session: light compilation, few partitions, the shared defaults otherwise."""
    from stelae.builder.local.session import local_session

    folder = tmp_path_factory.mktemp("spark")
    os.environ.setdefault("SPARK_LOCAL_DIRS", str(folder / "local"))
    options = {
        **LIGHT_SESSION,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # Python workers import functions of tests.
        "spark.executorEnv.PYTHONPATH": str(Path(__file__).parent.parent),
    }
    session = local_session(cores=2, memory="1g", settings=options)
    yield session
    session.stop()
