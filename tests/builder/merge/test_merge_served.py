"""Goal: what a build merges is what a running server answers, build after build, without a restart.

Method: random tables and streams of tests/builder/merge/test_merge_random.py, a tablet server of this process that
polls after each build; all keys that ever came are looked up over HTTP. The seed is in the test's name.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stelae.builder import build
from stelae.encoding.values import value_codec
from stelae.snapshot.warehouse import Warehouse
from tests.builder.merge.case_tables import KIND, output_value
from tests.builder.merge.merge_model import Model
from tests.builder.merge.test_merge_random import frame_of, key_of, make_example
from tests.cases import comparable
from tests.length import length
from tests.service.serving import serving

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 500


@pytest.mark.long
@pytest.mark.parametrize("seed", range(9000, 9000 + length(short=2, long=20)))
def test_a_running_server_answers_what_was_built(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    example = make_example(random.Random(seed))
    case = example.case
    warehouse = Warehouse(tmp_path / "warehouse")
    columns = warehouse.create_table(case.sql("t")).schema.columns
    codecs = {column.name: value_codec(column) for column in columns}
    model = Model([(c.name, c.type) for c in columns], case.primary_key, case.options)
    seen: set[tuple[object, ...]] = set()
    with serving(warehouse, data_folder=tmp_path / "server") as server:
        for number, batch in enumerate(example.batches, 1):
            model.build(batch)
            build(spark, warehouse, "t", frame_of(spark, example, batch), row_kind=KIND)
            server.poll()
            expected = {
                key_of(case, row): row
                for row in (
                    [comparable(case, c.name, c.type, v) for c, v in zip(columns, row, strict=True)]
                    for row in model.rows()
                )
            }
            seen |= {tuple(record[name] for name in case.primary_key) for _, record in batch}
            keys = sorted(seen, key=repr)
            found = {}
            for start in range(0, len(keys), BATCH):
                some = keys[start : start + BATCH]
                bodies = [
                    {
                        name: codecs[name].to_json(codecs[name].from_python(value, name))
                        for name, value in zip(case.primary_key, key, strict=True)
                    }
                    for key in some
                ]
                answer = server.post("/v1/tables/t/lookup", {"keys": bodies})
                assert answer.status == 200, answer.body
                assert answer.json["snapshot"] == number
                for row in answer.json["rows"]:
                    if row is not None:
                        values = [
                            output_value(
                                spark, case, c, codecs[c.name].to_python(codecs[c.name].from_json(row[c.name], ""))
                            )
                            for c in columns
                        ]
                        found[key_of(case, values)] = values
            assert found == expected
