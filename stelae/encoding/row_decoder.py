"""Compiled projections: the bytes of one row to the values of some columns, or to a dict that is ready for JSON.

A plan is made once for a schema and a set of columns (`plan_decoder`). One unpack takes the header and the fields that
are wanted. After a header without flags and nulls, compared as a whole, comes a loop over each kind of column
(`usual_decoder`, the hot path of HTTP); all other rows take the way that looks at each null (`unusual_decoder`).

Generated source would take 3/4 to 4/5 of its time for a row of five columns: not enough for code that nobody can read
or step through.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from stelae.encoding.errors import CONVERSION_ERRORS, corrupt_bytes
from stelae.encoding.row_fields import Fields
from stelae.encoding.row_header import FLAGS_AT, HIDDEN_FLAG, NULLS_AT, SCHEMA_ID
from stelae.encoding.value_codec import as_is
from stelae.encoding.values import value_codec
from stelae.errors import CorruptData

if TYPE_CHECKING:
    from stelae.schema.table_schema import Column

Decoder: TypeAlias = Callable[[bytes], Any]
"""Gives None for a row that is hidden."""
Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class DecodePlan:
    """What becomes of each field of a row.

    A field is `(key, at, bit, ...)`: its key in what is given out, its position among what is unpacked, its bit among
    the nulls.
    """

    schema_id: int
    usual_header: bytes
    """Of this schema, without flags and nulls."""
    column_count: int
    """Of the schema: bits among the nulls."""
    unpack: Callable[[bytes], tuple[Any, ...]]
    """The header, the words of wanted fixed fields, the lengths of all variable fields."""
    head_size: int
    """Bytes before those of the variable fields."""
    template: Any
    """What is given out, a list or a dict, with None in every place."""
    plain: tuple[tuple[Any, int, int], ...]
    """Fixed fields whose word is the value."""
    converted: tuple[tuple[Any, int, int, Convert], ...]
    variable: tuple[tuple[Any, int, int, Convert | None], ...]
    """All of them, in order; without a conversion if it is not wanted."""

    @property
    def gives_tuples(self) -> bool:
        """Or else the dict itself."""
        return isinstance(self.template, list)


def plan_decoder(
    schema_id: int,
    fields: Fields,
    usual_header: bytes,
    wanted: Mapping[int, tuple[Any, Column]],
    template: list[None] | dict[str, None],
) -> DecodePlan:
    """`wanted` has for the number of a field its key in the template, and the column as which it is read."""
    to_json = isinstance(template, dict)
    codes = f"<{len(usual_header)}s"
    head_size = struct.calcsize(codes + fields.codes)
    at = 1
    plain: list[tuple[Any, int, int]] = []
    converted: list[tuple[Any, int, int, Convert]] = []
    for i, fixed in fields.fixed:
        if i not in wanted:
            codes += f"{fixed.width}x"
            continue
        key, column = wanted[i]
        convert = _chain(fixed.from_word, _json_converter(column) if to_json else None)
        if convert is None:
            plain.append((key, at, 1 << i))
        else:
            converted.append((key, at, 1 << i, convert))
        codes += fixed.code
        at += 1
    variable: list[tuple[Any, int, int, Convert | None]] = []
    for i, cell in fields.variable:
        key = load = None
        if i in wanted:
            key, column = wanted[i]
            load = _chain(cell.load, _json_converter(column) if to_json else None)
        variable.append((key, at, 1 << i, load))
        codes += "I"
        at += 1
    return DecodePlan(
        schema_id,
        usual_header,
        len(fields.cells),
        struct.Struct(codes).unpack_from,
        head_size,
        template,
        tuple(plain),
        tuple(converted),
        tuple(variable),
    )


def usual_decoder(plan: DecodePlan, decode_unusual: Decoder) -> Decoder:
    """A decoder of rows without flags and nulls; others, and rows of other schemas, go to `decode_unusual`."""
    unpack, usual, head_size = plan.unpack, plan.usual_header, plan.head_size
    plain = [(key, at) for key, at, _ in plan.plain]
    converted = [(key, at, convert) for key, at, _, convert in plan.converted]
    variable = [(key, at, load) for key, at, _, load in plan.variable]
    copy, gives_tuples = plan.template.copy, plan.gives_tuples

    def decode(row: bytes) -> Any:
        try:
            fields = unpack(row)
            if fields[0] != usual:
                return decode_unusual(row)
            out = copy()
            for key, at in plain:
                out[key] = fields[at]
            for key, at, convert in converted:
                out[key] = convert(fields[at])
            end = head_size
            for key, at, load in variable:
                start = end
                end += fields[at]
                if load is not None:
                    out[key] = load(row[start:end])
        except CONVERSION_ERRORS as exc:
            if len(row) < head_size:
                return decode_unusual(row)  # of another schema, or cut
            raise _corrupt(row, str(exc)) from exc
        if end != len(row):
            raise _corrupt(row, f"it has {len(row)} bytes, its fields {end}")
        return tuple(out) if gives_tuples else out

    return decode


def unusual_decoder(plan: DecodePlan, other_schema: Callable[[int, bytes], Any] | None) -> Decoder:
    """A decoder of all rows. Those of other schema ids go to `other_schema`; without it they are CorruptData."""
    unpack, head_size, header_size = plan.unpack, plan.head_size, len(plan.usual_header)
    own_id, count = plan.schema_id, plan.column_count
    plain, converted, variable = plan.plain, plan.converted, plan.variable
    copy, gives_tuples = plan.template.copy, plan.gives_tuples

    def decode(row: bytes) -> Any:
        if len(row) < NULLS_AT:
            raise _corrupt(row, "it ends within its header")
        (schema_id,) = SCHEMA_ID.unpack_from(row)
        if schema_id != own_id:
            if other_schema is None:
                raise _corrupt(row, f"its schema id is {schema_id}, not {own_id}")
            return other_schema(schema_id, row)
        flags = row[FLAGS_AT]
        if flags > HIDDEN_FLAG:
            raise _corrupt(row, "it has a flag that is not known")
        if len(row) < head_size:
            raise _corrupt(row, f"it has {len(row)} bytes, its head {head_size}")
        nulls = int.from_bytes(row[NULLS_AT:header_size], "little")
        if nulls >> count:
            raise _corrupt(row, "its nulls are more than its columns")
        fields = unpack(row)
        out = copy()
        for key, at, bit in plain:
            if not nulls & bit:
                out[key] = fields[at]
        for key, at, bit, convert in converted:
            if not nulls & bit:
                out[key] = convert(fields[at])
        end = head_size
        for key, at, bit, load in variable:
            start = end
            end += fields[at]
            if load is not None and not nulls & bit:
                out[key] = load(row[start:end])
        if end != len(row):
            raise _corrupt(row, f"it has {len(row)} bytes, its fields {end}")
        if flags & HIDDEN_FLAG:
            return None
        return tuple(out) if gives_tuples else out

    return decode


def _json_converter(column: Column) -> Callable[[Any], Any] | None:
    convert = value_codec(column).present_to_json
    return None if convert is as_is else convert


def _chain(first: Callable[[Any], Any] | None, second: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """Both conversions, one after the other; None is no conversion."""
    if first is None or second is None:
        return first or second
    return lambda value: second(first(value))


def _corrupt(row: bytes, reason: str) -> CorruptData:
    return corrupt_bytes("row", row, reason)
