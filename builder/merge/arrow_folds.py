"""What Spark has no exact function for, folded in the writer once a batch: products of DECIMAL, Roaring bitmaps.

The merge hands on a column's inputs as a list, in the order in which they are folded (builder/merge/aggregate.py).
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.aggregate_functions import BITMAPS
from stelae.schema.merge_rules import ColumnRule

if TYPE_CHECKING:
    import pyarrow as pa


def is_folded_in_arrow(rule: ColumnRule) -> bool:
    """Whether the merge hands on a column's inputs as a list, for `ArrowFold`."""
    if rule.function.name in BITMAPS:
        return True
    return rule.function.name == "product" and isinstance(rule.column.type, t.Decimal)


@dataclass(frozen=True)
class ArrowFold:
    """Folds one column of merged rows. Pickled with the writer's tasks."""

    rule: ColumnRule

    def __call__(self, inputs: pa.Array, key_of: Callable[[int], str]) -> pa.Array:
        """The column's values; `key_of` shows the key of a row for errors."""
        if self.rule.function.name == "product":
            return _decimal_products(inputs, self.rule, key_of)
        if self.rule.function.name in BITMAPS:
            return _bitmaps(inputs, self.rule, key_of)
        raise AssertionError(f"{self.rule.function.name} is not folded here: add it")


def arrow_folds(rules: Sequence[ColumnRule], value_names: Sequence[str]) -> dict[int, ArrowFold]:
    """By position among the value columns."""
    return {
        value_names.index(rule.column.name): ArrowFold(rule) for rule in rules if is_folded_in_arrow(rule)
    }  # fmt: skip


_EXACT = decimal.Context(prec=2 * t.MAX_DECIMAL_PRECISION + 2, rounding=decimal.ROUND_HALF_UP)


def _decimal_products(inputs: pa.Array, rule: ColumnRule, key_of: Callable[[int], str]) -> pa.Array:
    """Each step is rounded half up to the column's scale, as Paimon does it."""
    import pyarrow as pa

    from stelae.encoding.arrow import arrow_type

    data_type = rule.column.type
    if not isinstance(data_type, t.Decimal):
        raise TypeError(data_type)
    step = decimal.Decimal(1).scaleb(-data_type.scale)
    limit = decimal.Decimal(10) ** (data_type.precision - data_type.scale)
    offsets = inputs.offsets.to_numpy()
    first, last = int(offsets[0]), int(offsets[-1])
    items = inputs.values.slice(first, last - first)
    retracts = items.field(0).to_numpy(zero_copy_only=False).tolist()
    values = items.field(1).to_pylist()
    products: list[decimal.Decimal | None] = []
    for row, (start, stop) in enumerate(zip(offsets[:-1] - first, offsets[1:] - first, strict=True)):
        total: decimal.Decimal | None = None
        for retract, value in zip(retracts[start:stop], values[start:stop], strict=True):
            if total is None:
                total = None if retract else value
                continue
            if retract and not value:
                raise InvalidRequest(
                    f"product of column {rule.column.name} can't take back 0 in the row with key {key_of(row)}",
                    place=rule.column.name,
                    hint="nothing times 0 is undone",
                )
            exact = _EXACT.divide(total, value) if retract else _EXACT.multiply(total, value)
            total = exact.quantize(step, context=_EXACT)
            if abs(total) >= limit:
                raise InvalidRequest(
                    f"product does not fit column {rule.column.name} {data_type.sql_name()}: {total} in the row with "
                    f"key {key_of(row)}",
                    place=rule.column.name,
                    hint="a wider type has room for it",
                )
        products.append(total)
    return pa.array(products, arrow_type(data_type))


def _bitmaps(inputs: pa.Array, rule: ColumnRule, key_of: Callable[[int], str]) -> pa.Array:
    """Unions of serialized bitmaps and of ids; null where there is neither."""
    import pyarrow as pa
    from pyroaring import BitMap, BitMap64

    kind: Any = BitMap if rule.function.name == "rbm32" else BitMap64
    bitmaps, ids = inputs.field(0), inputs.field(1)
    bitmap_offsets, id_offsets = bitmaps.offsets.to_numpy(), ids.offsets.to_numpy()
    serialized = bitmaps.values
    numbers = ids.values.to_numpy(zero_copy_only=False)
    numbers = numbers.astype(np.uint32 if kind is BitMap else np.uint64, copy=False)
    results: list[bytes | None] = []
    for row in range(len(inputs)):
        start, stop = int(bitmap_offsets[row]), int(bitmap_offsets[row + 1])
        first, last = int(id_offsets[row]), int(id_offsets[row + 1])
        if start == stop and first == last:
            results.append(None)
            continue
        union = kind(numbers[first:last])
        for index in range(start, stop):
            try:
                union |= kind.deserialize(serialized[index].as_py())
            except Exception as exc:
                name = rule.function.name
                raise InvalidRequest(
                    f"column {rule.column.name} has bytes that are no portable {name[3:]}-bit Roaring bitmap, in the "
                    f"row with key {key_of(row)}: {exc}",
                    place=rule.column.name,
                    hint="serialize it with CRoaring, pyroaring, or RoaringBitmap's portable format; or give ids",
                ) from exc
        if hasattr(union, "run_optimize"):
            union.run_optimize()
        results.append(union.serialize())
    return pa.array(results, pa.binary())
