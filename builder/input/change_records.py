"""Input rows, made into change records: checked, typed and ordered. All of it is Spark expressions in the JVM.

Columns of the records:

    partition, key and value columns, each with exactly the table's type; the auto-increment column is null
    __stelae_id_*      BIGINT    of a bitmap column (rbm32, rbm64) whose input are ids: the id
    __stelae_action    TINYINT   what the record does by its row kind: insert, retract, remove
    __stelae_hidden    BOOLEAN   true for -D and -U
    __stelae_order_*   arrival: records with equal sequence values merge in this order; base rows come before all

Records whose row kind the table ignores are dropped here. A row that can't be stored (null key, unknown or refused row
kind, text that is too long) stops the job with its key named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING
from urllib.parse import unquote

from stelae.builder.plan.columns import (
    ACTION_COLUMN,
    BLOCK_COLUMN,
    FILE_COLUMN,
    HIDDEN_COLUMN,
    ID_COLUMN_PREFIX,
    INSERT,
    JOIN_PATH_COLUMN,
    KIND_COLUMN,
    ORDER_COLUMN,
    PATH_COLUMN,
    REMOVE,
    RESERVED_PREFIX,
    RETRACT,
    ROW_COLUMN,
)
from stelae.builder.plan.row_errors import raise_for_row
from stelae.errors import InvalidRequest
from stelae.schema import types as t
from stelae.schema.aggregate_functions import BITMAPS
from stelae.schema.merge_rules import Action, MergeRules, merge_rules
from stelae.schema.table_schema import Column, TableSchema

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType as SparkType


ROW_KINDS = ("+I", "-U", "+U", "-D")


@dataclass(frozen=True)
class ChangeRecords:
    """The input of a build."""

    frame: DataFrame
    retracts: bool
    """Whether there may be -U and -D among the records."""


def change_records(
    frame: DataFrame,
    schema: TableSchema,
    row_kind: str | None,
    *,
    targets: frozenset[str] | None = None,
    allow_missing_columns: bool = False,
    ignore_extra_columns: bool = False,
    has_arrival: bool = False,
) -> ChangeRecords:
    """Change records from any frame. Columns are matched by name; `row_kind` names the column that says +I, -U, +U or
    -D. `targets`: the columns that the records set (`target_columns`). `has_arrival`: the frame is one of
    `with_arrival`.
    """
    from pyspark.sql import functions as f

    check_ids_are_not_given(frame, schema)
    kind_column = _row_kind_column(frame, schema, row_kind)
    if targets is not None:
        others = {column.name.casefold() for column in schema.columns if column.name not in targets}
        frame = frame.drop(*(name for name in frame.columns if name.casefold() in others and name != kind_column))
    sources = match_columns(
        frame, schema, kind_column, targets=targets, allow_missing_columns=allow_missing_columns,
        ignore_extra_columns=ignore_extra_columns,
    )  # fmt: skip
    if not has_arrival:
        frame = with_arrival(frame, needed=order_matters(schema, kind_column))
    rules = merge_rules(schema)
    kept, action = frame, f.lit(INSERT)
    if kind_column:
        kept = frame.withColumn(KIND_COLUMN, _kind_expression(f.col(t.quote_name(kind_column)), schema, sources))
        ignored = [kind for kind, does in _does(rules) if does == "ignore"]
        if ignored:
            kept = kept.where(~f.col(KIND_COLUMN).isin(*ignored))
        action = _action_expression(rules, schema, sources)
    hidden = action != INSERT
    of_ids = _columns_of_ids(schema, sources, frame)
    as_stored = {name: source for name, source in sources.items() if name not in {column.name for column in of_ids}}
    columns = [_stored(column, schema, as_stored, hidden) for column in schema.columns]
    columns += [_id(column, schema, sources) for column in of_ids]
    records = kept.select(
        *columns,
        action.cast("tinyint").alias(ACTION_COLUMN),
        hidden.alias(HIDDEN_COLUMN),
        *(f.col(name) for name in order_columns(frame)),
    )
    retracts = kind_column is not None and {rules.on_delete, rules.on_update_before} != {"ignore"}
    return ChangeRecords(records, retracts)


def check_ids_are_not_given(frame: DataFrame, schema: TableSchema) -> None:
    """InvalidRequest for a frame with the auto-increment column, whatever it holds."""
    column = schema.auto_increment
    found = next((name for name in frame.columns if column and name.casefold() == column.name.casefold()), None)
    if found is not None:
        raise InvalidRequest(
            f"the input has the auto-increment column {found}: ids are minted, not given",
            place=found,
            hint=f"drop the column: frame.drop({found!r}); a key keeps the id that it has",
        )


def _does(rules: MergeRules) -> list[tuple[str, Action]]:
    return [("-D", rules.on_delete), ("-U", rules.on_update_before)]


def _action_expression(rules: MergeRules, schema: TableSchema, sources: dict[str, str]) -> SparkColumn:
    """The action of each record's row kind; one that the table refuses stops the job."""
    from pyspark.sql import functions as f

    action = f.when(f.col(KIND_COLUMN).isin("+I", "+U"), INSERT)
    for kind, does in _does(rules):
        if does == "refuse":
            text = f"a {kind} record, which a table with merge engine {rules.engine} refuses here,"
            refused = raise_for_row(text, f.lit(""), schema, sources, hint=rules.why.get(kind, "")).cast("int")
            action = action.when(f.col(KIND_COLUMN) == kind, refused)
        elif does != "ignore":
            action = action.when(f.col(KIND_COLUMN) == kind, REMOVE if does == "remove" else RETRACT)
    return action


def id_column(column: Column) -> str:
    """The column of records that holds ids for a bitmap column."""
    return f"{ID_COLUMN_PREFIX}{column.id}"


def takes_ids(column: Column, schema: TableSchema) -> bool:
    """Whether the column is a bitmap into which a build may collect ids."""
    return any(
        rule.column.id == column.id and rule.function.name in BITMAPS for rule in merge_rules(schema).columns
    )  # fmt: skip


def _columns_of_ids(schema: TableSchema, sources: dict[str, str], frame: DataFrame) -> list[Column]:
    from pyspark.sql import types as s

    integers = (s.ByteType, s.ShortType, s.IntegerType, s.LongType)
    types = {field.name: field.dataType for field in frame.schema.fields}
    return [
        column
        for column in schema.value_columns
        if column.name in sources and takes_ids(column, schema) and isinstance(types[sources[column.name]], integers)
    ]


def _id(column: Column, schema: TableSchema, sources: dict[str, str]) -> SparkColumn:
    """Ids for a bitmap column, checked for what the bitmap can hold."""
    from pyspark.sql import functions as f

    rule = next(rule for rule in merge_rules(schema).columns if rule.column.id == column.id)
    largest = BITMAPS[rule.function.name]
    value = f.col(t.quote_name(sources[column.name])).cast("bigint")
    text = f"an id out of the range of {rule.function.name} (0 to {largest}) in column {column.name}: "
    wrong = raise_for_row(text, value, schema, sources).cast("bigint")
    return f.when((value < 0) | (value > largest), wrong).otherwise(value).alias(id_column(column))


def target_columns(schema: TableSchema, names: Sequence[str] | None) -> frozenset[str] | None:
    """The columns that a partial update sets, keys included; None: all of them. What Fluss calls target columns.

    Raises InvalidRequest where a table can't take a partial update.
    """
    if names is None:
        return None
    rules = merge_rules(schema)
    place = "target_columns"
    for name in names:
        schema.column(name)
    minted = schema.auto_increment.name if schema.auto_increment else None
    if minted in names:
        raise InvalidRequest(
            f"{minted} can't be a target: ids are minted, not given", place=place, hint=f"leave {minted} out"
        )
    targets = frozenset((*names, *schema.primary_key))
    if rules.engine in ("first-row", "versioned"):
        raise InvalidRequest(f"the merge engine {rules.engine} takes whole rows, no partial updates", place=place)
    required = [column.name for column in schema.value_columns if not column.type.nullable and column.name != minted]
    if required:
        raise InvalidRequest(
            f"a partial update needs nullable columns beside the key, but {', '.join(required)} is NOT NULL",
            place=place,
            hint="give all columns, or declare it without NOT NULL",
        )
    needed = [*(column.name for column in rules.sequence), *([schema.options.rowkind_field or ""])]
    lacking = [name for name in needed if name and name not in targets]
    if lacking:
        raise InvalidRequest(
            f"a partial update has to give {', '.join(lacking)}: it orders the records, or says what they are",
            place=place,
            hint=f"add {', '.join(lacking)}",
        )
    return None if targets | {minted} == {*schema.column_names, minted} else targets


def order_matters(schema: TableSchema, row_kind: str | None) -> bool:
    """Whether it makes a difference which record of a key comes last: not if keys are all there is."""
    alone = schema.value_columns == (schema.auto_increment,) and not merge_rules(schema).sequence
    return not alone or row_kind is not None


def order_columns(frame: DataFrame) -> list[str]:
    """The arrival columns that a frame of change records has, the most significant first."""
    return [name for name in (FILE_COLUMN, BLOCK_COLUMN, ORDER_COLUMN) if name in frame.columns]


def match_columns(
    frame: DataFrame,
    schema: TableSchema,
    kind_column: str | None,
    *,
    targets: frozenset[str] | None,
    allow_missing_columns: bool,
    ignore_extra_columns: bool,
) -> dict[str, str]:
    """Table column → input column, without those that are null for want of an input column. Raises InvalidRequest for
    missing, superfluous and wrongly typed columns, all at once.
    """
    by_name = {name: name for name in frame.columns}
    folded: dict[str, list[str]] = {}
    for name in frame.columns:
        folded.setdefault(name.casefold(), []).append(name)
    duplicates = [names for names in folded.values() if len(names) > 1]
    if duplicates:
        raise InvalidRequest(f"input columns differ only in case: {duplicates[0]}", hint="Spark can't tell them apart")
    found = {
        column.name: by_name.get(column.name) or folded[column.name.casefold()][0]
        for column in schema.columns
        if column.name.casefold() in folded
    }
    lacking = [column for column in schema.columns if column.name not in found and column != schema.auto_increment]
    if targets is None:
        missing = [column.name for column in lacking if not _may_lack(column, schema, allow_missing_columns)]
    else:
        missing = [column.name for column in lacking if column.name in targets]
    known = {*found.values(), kind_column, FILE_COLUMN, BLOCK_COLUMN, ORDER_COLUMN}
    extra = [name for name in frame.columns if name not in known]
    refused = [] if ignore_extra_columns else extra
    if missing or refused:
        only_nulls = all(_may_lack(column, schema, True) for column in lacking)
        raise InvalidRequest(
            _mismatch(missing, refused),
            hint=_nearest([column.name for column in lacking], extra) or _flags(missing, refused, only_nulls),
        )
    fields = {field.name: field.dataType for field in frame.schema.fields}
    wrong = [
        f"{column.name} is {fields[found[column.name]].simpleString().upper()}, the table has {column.type.sql_name()}"
        for column in schema.columns
        if column.name in found
        and not is_storable(fields[found[column.name]], column.type)
        and not (takes_ids(column, schema) and is_storable(fields[found[column.name]], t.BigInt()))
    ]
    if wrong:
        raise InvalidRequest(
            f"input columns have other types than the table: {'; '.join(wrong)}",
            hint="cast them in the job: Stelae widens types, but never narrows or parses them",
        )
    return found


def _may_lack(column: Column, schema: TableSchema, allowed: bool) -> bool:
    """Whether an input without this column is taken, with null for it.

    To partial-update a null is nothing new, so that there it needs no leave. But a record whose sequence is null would
    lose against all others.
    """
    options = schema.options
    if not column.type.nullable or column.name in schema.primary_key or column.name == options.rowkind_field:
        return False
    return allowed or (options.merge_engine == "partial-update" and column.name not in options.sequence_field)


def is_storable(source: SparkType, target: t.DataType) -> bool:
    """Whether every value of a Spark type fits a column without loss: the same type, or a wider one."""
    from pyspark.sql import types as s

    match target:
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bits: dict[type[SparkType], int] = {s.ByteType: 8, s.ShortType: 16, s.IntegerType: 32, s.LongType: 64}
            return bits.get(type(source), 1000) <= target.bits
        case t.Double():
            return isinstance(source, s.DoubleType | s.FloatType | s.ByteType | s.ShortType | s.IntegerType)
        case t.Float():
            return isinstance(source, s.FloatType | s.ByteType | s.ShortType)
        case t.Decimal(precision=precision, scale=scale):
            digits: dict[type[SparkType], int] = {s.ByteType: 3, s.ShortType: 5, s.IntegerType: 10, s.LongType: 19}
            if type(source) in digits:
                return digits[type(source)] <= precision - scale
            return (
                isinstance(source, s.DecimalType)
                and source.scale <= scale
                and source.precision - source.scale <= precision - scale
            )
        case t.Boolean():
            return isinstance(source, s.BooleanType)
        case t.String():
            return isinstance(source, s.StringType | s.VarcharType | s.CharType) and _binary_collation(source)
        case t.Binary():
            return isinstance(source, s.BinaryType)
        case t.Date():
            return isinstance(source, s.DateType)
        case t.Time():
            return isinstance(source, s.TimeType)
        case t.Timestamp():
            return isinstance(source, s.TimestampNTZType)
        case t.TimestampLtz():
            return isinstance(source, s.TimestampType)
        case t.Array(element=element):
            return isinstance(source, s.ArrayType) and is_storable(source.elementType, element)
        case t.Map(key=key, value=value):
            return (
                isinstance(source, s.MapType)
                and is_storable(source.keyType, key)
                and is_storable(source.valueType, value)
            )
        case t.Row(fields=fields):
            return (
                isinstance(source, s.StructType)
                and [field.name for field in fields] == source.names
                and all(is_storable(a.dataType, b.type) for a, b in zip(source.fields, fields, strict=True))
            )
    return False


def _binary_collation(source: SparkType) -> bool:
    # Equal under another collation is not equal in bytes: the bucket and the key would disagree with Spark's grouping.
    return getattr(source, "collation", "UTF8_BINARY") == "UTF8_BINARY"


def _row_kind_column(frame: DataFrame, schema: TableSchema, row_kind: str | None) -> str | None:
    declared = schema.options.rowkind_field
    if declared is not None:
        if row_kind is not None and row_kind != declared:
            raise InvalidRequest(
                f"the table takes row kinds from its column {declared!r} (rowkind.field), not from {row_kind!r}",
                place="row_kind",
            )
        return next((name for name in frame.columns if name.casefold() == declared.casefold()), declared)
    if row_kind is None:
        return None
    found = next((name for name in frame.columns if name.casefold() == row_kind.casefold()), None)
    if found is None:
        raise InvalidRequest(
            f"the input has no column {row_kind!r} for row kinds",
            place="row_kind",
            hint=f"input columns: {', '.join(frame.columns)}",
        )
    return found


def _kind_expression(column: SparkColumn, schema: TableSchema, sources: dict[str, str]) -> SparkColumn:
    from pyspark.sql import functions as f

    kind = f.when(column.isin(*ROW_KINDS), column).otherwise(f.upper(f.trim(column)))
    wrong = raise_for_row(
        "unknown row kind ", f.coalesce(column.cast("string"), f.lit("null")), schema, sources,
        hint="row kinds are +I (insert), -U (update before), +U (update after), -D (delete)",
    )  # fmt: skip
    return f.when(kind.isin(*ROW_KINDS), kind).otherwise(wrong)


def _stored(column: Column, schema: TableSchema, sources: dict[str, str], hidden: SparkColumn) -> SparkColumn:
    """The column as it is stored: the table's type, checks included."""
    from pyspark.sql import functions as f

    def too_long(shown: SparkColumn, what: str) -> SparkColumn:
        return raise_for_row(f"{what} in column {column.name}: ", shown, schema, sources)

    if column.name not in sources:
        return f.lit(None).cast(column.type.spark()).alias(column.name)
    source = f.col(t.quote_name(sources[column.name]))
    value = _limited(source.cast(column.type.spark()), column.type, too_long)
    if column.name in schema.primary_key and not column.type.nullable:
        null = raise_for_row(f"null in primary-key column {column.name}", f.lit(""), schema, sources)
        value = f.coalesce(value, null.cast(column.type.spark()))
    elif not column.type.nullable:
        null = raise_for_row(f"null in NOT NULL column {column.name}", f.lit(""), schema, sources)
        value = f.when(value.isNull() & ~hidden, null.cast(column.type.spark())).otherwise(value)
    return value.alias(column.name)


def _limited(
    value: SparkColumn, data_type: t.DataType, too_long: Callable[[SparkColumn, str], SparkColumn]
) -> SparkColumn:
    """The value within the limits of its type that Spark's type does not have, at every depth: lengths are checked,
    fractional digits cut.
    """
    from pyspark.sql import functions as f

    if not _has_limits(data_type):
        return value
    match data_type:
        case t.String(length=int(length)):
            error = too_long(value, f"text longer than {data_type.sql_name()}")
            return f.when(f.char_length(value) > length, error).otherwise(value)
        case t.Binary(length=int(length)):
            error = too_long(f.hex(value), f"more bytes than {data_type.sql_name()}")
            return f.when(f.octet_length(value) > length, error).otherwise(value)
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            return _floor_timestamp(value, precision, data_type)
        case t.Array(element=element):
            return f.transform(value, lambda item: _limited(item, element, too_long))
        case t.Map(key=key, value=of):
            if _has_limits(of):
                value = f.transform_values(value, lambda _, item: _limited(item, of, too_long))
            return f.transform_keys(value, lambda item, _: _limited(item, key, too_long)) if _has_limits(key) else value
        case t.Row(fields=fields):
            limited = [_limited(value.getField(each.name), each.type, too_long).alias(each.name) for each in fields]
            return f.when(value.isNotNull(), f.struct(*limited))
    return value


def _has_limits(data_type: t.DataType) -> bool:
    match data_type:
        case t.String(length=length) | t.Binary(length=length):
            return length is not None
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision):
            return precision < t.MAX_TIME_PRECISION
        case t.Array(element=element):
            return _has_limits(element)
        case t.Map(key=key, value=value):
            return _has_limits(key) or _has_limits(value)
        case t.Row(fields=fields):
            return any(_has_limits(each.type) for each in fields)
    return False


def _floor_timestamp(value: SparkColumn, precision: int, column_type: t.DataType) -> SparkColumn:
    """Cut fractional digits that the precision has no room for, as SQL casts do."""
    from pyspark.sql import functions as f

    step = 10 ** (t.MAX_TIME_PRECISION - precision)
    if isinstance(column_type, t.TimestampLtz):
        micros = f.unix_micros(value)
        return f.timestamp_micros(micros - f.pmod(micros, f.lit(step)))
    # A wall clock has no unix_micros; its seconds are the same in every zone.
    rest = f.pmod((f.extract(f.lit("SECONDS"), value) * 1_000_000).cast("bigint"), f.lit(step))
    return value - f.make_dt_interval(secs=(rest / 1_000_000).cast("decimal(18, 6)"))


def with_arrival(frame: DataFrame, files: Sequence[str] | None = None, *, needed: bool = True) -> DataFrame:
    """The frame with its arrival columns: see `order_columns`.

    A frame that reads files straight has file order, then row order; `files` gives the order of the files, which is
    otherwise that of their names. Any other frame has the order of its Spark partitions and of the rows inside: for
    such input a sequence field is the only order to rely on. A frame that has such columns already is refused: they
    would decide which record wins. If they are not `needed`, they say nothing and cost nothing.
    """
    from pyspark.sql import functions as f

    taken = [name for name in frame.columns if name.casefold().startswith(RESERVED_PREFIX)]
    if taken:
        raise InvalidRequest(
            f"the input has a column {taken[0]!r}: names that start with {RESERVED_PREFIX} are the builder's own",
            place=taken[0],
            hint="leave it out, or rename it",
        )
    if not needed:
        return frame.withColumn(ORDER_COLUMN, f.lit(0).cast("bigint"))
    straight = files is not None or reads_files_straight(frame)
    raw = raw_input_files(frame) if straight else []
    if files is None:
        files = sorted(plain_path(path) for path in raw)
    if len(files) > 1 and (placed := _in_file_order(frame, raw, files)) is not None:
        return placed
    # Splits of one file keep their order: Spark sorts splits by length, stably, and only the last one is shorter.
    return frame.withColumn(ORDER_COLUMN, f.monotonically_increasing_id())


def _in_file_order(frame: DataFrame, raw: Sequence[str], files: Sequence[str]) -> DataFrame | None:
    """The frame with the arrival of its rows by the order of `files`; None where Spark does not know the files of rows.

    Parquet knows the number of a row in its file, so that one column is enough; elsewhere it takes file, block and row.
    """
    from pyspark.sql import functions as f

    path = f.col("_metadata.file_path").alias(PATH_COLUMN)
    row = f.col("_metadata.row_index").alias(ROW_COLUMN)
    block = f.col("_metadata.file_block_start").alias(BLOCK_COLUMN)
    found = _selected(frame, path, row) if len(files) <= MAX_NUMBERED_FILES else None
    if found is None:
        found = _selected(frame, path, block, f.monotonically_increasing_id().alias(ORDER_COLUMN))
    if found is None:
        return None
    position = {path: position for position, path in enumerate(files)}
    positions = frame.sparkSession.createDataFrame(
        [(name, position.get(plain_path(path))) for path in raw for name in _spellings(path)],
        f"{JOIN_PATH_COLUMN} STRING, {FILE_COLUMN} INT",
    )
    joined = found.join(f.broadcast(positions), f.col(PATH_COLUMN) == f.col(JOIN_PATH_COLUMN), "left").drop(
        PATH_COLUMN, JOIN_PATH_COLUMN
    )
    unknown = f.raise_error(f.lit("an input file appeared while the job was planned")).cast("int")
    file = f.coalesce(f.col(FILE_COLUMN), unknown)
    if ROW_COLUMN not in found.columns:
        return joined.withColumn(FILE_COLUMN, file)
    number = f.shiftleft(file.cast("bigint"), _ROW_BITS).bitwiseOR(f.col(ROW_COLUMN))
    return joined.withColumn(ORDER_COLUMN, number).drop(FILE_COLUMN, ROW_COLUMN)


def _selected(frame: DataFrame, *columns: SparkColumn) -> DataFrame | None:
    """The frame with more columns; None where there are none of that name."""
    from pyspark.errors import AnalysisException

    try:
        selected = frame.select("*", *columns)
        selected.schema  # noqa: B018 - a remote session analyses only when asked.
    except AnalysisException:
        return None
    return selected


_ROW_BY_ROW = frozenset({"Project", "Filter", "Generate", "SubqueryAlias", "View"})
"""Steps of a plan that leave rows where they are."""


def reads_files_straight(frame: DataFrame) -> bool:
    """Whether rows still have the order of their files: nothing sorted, joined, grouped or moved them.

    A remote session does not show its plans: there, frames count as straight if Spark knows the files of their rows.
    """
    try:
        plan = frame._jdf.queryExecution().analyzed()
    except Exception:
        return True
    while plan.nodeName() in _ROW_BY_ROW and plan.children().size() == 1:
        plan = plan.children().apply(0)
    return bool(plan.children().isEmpty())


def raw_input_files(frame: DataFrame) -> list[str]:
    """Paths of files that a frame reads, as Spark writes them; empty where the source has no files."""
    try:
        return list(frame.inputFiles())
    except Exception:
        return []


def _spellings(path: str) -> set[str]:
    """A raw path as `inputFiles` and as `_metadata` have it: they do not agree on how many slashes a local one has."""
    local = re.sub("^file:/+", "", path)
    return {path} if local == path else {path, f"file:/{local}", f"file:///{local}"}


def plain_path(path: str) -> str:
    """A path as people write it: without `file:` and percent-encoding."""
    plain = unquote(path)
    return "/" + plain.removeprefix("file:").lstrip("/") if plain.startswith("file:") else plain


_ROW_BITS = 40
MAX_NUMBERED_FILES = 2**23
"""So many files of up to 2^40 rows each can be numbered through in one BIGINT."""


def _mismatch(missing: Sequence[str], extra: Sequence[str]) -> str:
    parts = []
    if missing:
        parts.append(f"the input lacks columns of the table: {', '.join(missing)}")
    if extra:
        parts.append(f"the input has columns that the table has not: {', '.join(extra)}")
    return "; ".join(parts)


def _nearest(missing: Sequence[str], extra: Sequence[str]) -> str | None:
    pairs = [(name, near[0]) for name in missing if (near := get_close_matches(name, extra, 1))]
    if pairs:
        return f"is {pairs[0][1]!r} meant to be {pairs[0][0]!r}?"
    return None


def _flags(missing: Sequence[str], extra: Sequence[str], only_nulls: bool) -> str | None:
    """The option that would take the input as it is; none where one would not do."""
    if missing:
        return "where null will do for them: --allow-missing-columns" if only_nulls and not extra else None
    return "leave them out: --ignore-extra-columns; or is one of them the row kind: --row-kind"
