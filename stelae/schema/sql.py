"""Table definitions, and changes of them, from SQL.

    CREATE TABLE ... ──sql_grammar.py──▶ sqlglot's tree ──this module──▶ TableSchema ──checks.py──▶ checked
    ALTER TABLE ...                                                      AlterTable ──alter.py──▶ TableSchema

A statement is written as for Paimon or Fluss, in Flink SQL or Spark SQL; docs/sql.md says what is taken. Nothing of
it is dropped: what the schema cannot hold is refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from stelae.errors import InvalidRequest
from stelae.names import DEFAULT_DATABASE, TableName
from stelae.schema import types
from stelae.schema.alter import AlterTable, NewColumn
from stelae.schema.checks import check_table
from stelae.schema.option_parsing import find_option, parse_options
from stelae.schema.options import PARTITION, PRIMARY_KEY
from stelae.schema.table_schema import Column, TableSchema
from stelae.schema.types import DataType

if TYPE_CHECKING:
    from sqlglot import exp

T = TypeVar("T")


def parse_create_table(sql: str) -> tuple[TableName, TableSchema, bool]:
    """Name, checked schema (id 0, columns 0..n-1) and IF NOT EXISTS of the one CREATE TABLE in `sql`."""
    from stelae.schema import sql_grammar  # takes a third of a second: see there

    create = sql_grammar.parse_create(sql)
    return _table_name(create.this.this), _schema(create), bool(create.args["exists"])


def parse_alter_table(sql: str) -> AlterTable:
    """What the one ALTER TABLE in `sql` asks for. `evolve` says whether the table can have it."""
    from stelae.schema import sql_grammar

    alter = sql_grammar.parse_alter(sql)
    actions = alter.args["actions"]
    columns = [action for action in actions if action.key == "columndef"]
    properties = [(action.name, action.args["value"].name) for action in actions if action.key == "property"]
    return AlterTable(
        name=_table_name(alter.this),
        columns=tuple(NewColumn(each.name, each.type, each.comment) for each in (_column(0, c, ()) for c in columns)),
        options=_each_once(properties),
        if_exists=bool(alter.args["exists"]),
        if_not_exists=any(column.args["exists"] for column in columns),
    )


def _table_name(table: exp.Expr) -> TableName:
    return TableName(table.args["db"].name if table.args.get("db") else DEFAULT_DATABASE, table.name)


def _schema(create: exp.Create) -> TableSchema:
    items: list[exp.Expr] = create.this.expressions
    declared = [item for item in items if item.key == "columndef"]
    raw = _options(create)
    primary_key = _stated_once("primary key", [*_primary_keys(items), *_taken_out(raw, PRIMARY_KEY)]) or ()
    partition_keys = _stated_once("partitioning", [*_partition_keys(create), *_taken_out(raw, PARTITION)]) or ()
    comments = [clause.this.name for clause in _clauses(create, "schemacommentproperty")]
    options = parse_options(raw)
    never_null = () if options.primary_key_nullable else primary_key
    schema = TableSchema(
        id=0,
        columns=tuple(_column(index, item, never_null) for index, item in enumerate(declared)),
        primary_key=primary_key,
        partition_keys=partition_keys,
        options=options,
        comment=_stated_once("comment", comments) or None,
    )
    check_table(schema)
    return schema


# --- columns


def _column(index: int, item: exp.Expr, not_null: Sequence[str]) -> Column:
    """A column as declared; those in `not_null` are never null, whether that is written or not."""
    constraints = [constraint.kind for constraint in item.args["constraints"]]
    never_null = any(kind.key == "notnullcolumnconstraint" for kind in constraints) or item.name in not_null
    comments = [kind.this.name for kind in constraints if kind.key == "commentcolumnconstraint"]
    data_type = data_type_of(item.args["kind"])
    return Column(
        id=index,
        name=item.name,
        type=dataclasses.replace(data_type, nullable=False) if never_null else data_type,
        comment=_stated_once(f"comment of column {item.name!r}", comments) or None,
    )


_SIMPLE: Mapping[str, DataType] = {
    "BOOLEAN": types.Boolean(),
    "TINYINT": types.TinyInt(),
    "SMALLINT": types.SmallInt(),
    "INT": types.Int(),
    "BIGINT": types.BigInt(),
    "FLOAT": types.Float(),
    "DOUBLE": types.Double(),
    "TEXT": types.String(),
    "BLOB": types.Binary(),
    "DATE": types.Date(),
}
_WITH_NUMBERS: Mapping[str, Callable[..., DataType]] = {
    "DECIMAL": lambda precision=10, scale=0: types.Decimal(precision=precision, scale=scale),
    "CHAR": lambda length=1: types.String(length=length, fixed=True),
    "VARCHAR": lambda length=None: types.String(length=_limit(length)),
    "BINARY": lambda length=None: types.Binary(length=_limit(length), fixed=length is not None),
    "VARBINARY": lambda length=None: types.Binary(length=_limit(length)),
    "TIME": lambda precision=0: types.Time(precision=precision),
    "TIMESTAMPNTZ": lambda precision=6: types.Timestamp(precision=precision),
    "TIMESTAMPLTZ": lambda precision=6: types.TimestampLtz(precision=precision),
}
"""Defaults are those of Flink, but that BINARY, VARBINARY and VARCHAR without a length have no limit (Flink: 1)."""


def _limit(length: int | None) -> int | None:
    return None if length == types.MAX_LENGTH else length


def data_type_of(node: exp.DataType) -> DataType:
    """The type that the grammar's tree describes."""
    kind, parts = node.this.name, node.expressions
    nullable = node.args.get("nullable") is not False
    if kind in _SIMPLE:
        return dataclasses.replace(_SIMPLE[kind], nullable=nullable)
    if kind in _WITH_NUMBERS:
        numbers = [int(part.name) for part in parts]
        return dataclasses.replace(_WITH_NUMBERS[kind](*numbers), nullable=nullable)
    if kind == "ARRAY":
        return types.Array(nullable=nullable, element=data_type_of(parts[0]))
    if kind == "MAP":
        return types.Map(nullable=nullable, key=data_type_of(parts[0]), value=data_type_of(parts[1]))
    fields = tuple(types.Field(part.name, data_type_of(part.args["kind"])) for part in parts)
    return types.Row(nullable=nullable, fields=fields)


# --- keys


def _primary_keys(items: Sequence[exp.Expr]) -> list[tuple[str, ...]]:
    """Every primary key that the column list states."""
    stated = [tuple(part.name for part in item.expressions) for item in items if item.key == "primarykey"]
    for item in items:
        kinds = [constraint.kind.key for constraint in item.args.get("constraints", ())]
        stated += [(item.name,) for kind in kinds if kind == "primarykeycolumnconstraint"]
    return stated


def _partition_keys(create: exp.Create) -> list[tuple[str, ...]]:
    clauses = _clauses(create, "partitionedbyproperty")
    return [tuple(part.name for part in clause.this.expressions) for clause in clauses]


# --- options


def _options(create: exp.Create) -> dict[str, str]:
    """Options as written, WITH, TBLPROPERTIES and DISTRIBUTED together."""
    written = [(clause.name, clause.args["value"].name) for clause in _clauses(create, "property")]
    for clause in _clauses(create, "distributedbyproperty"):
        if clause.expressions:
            written.append(("bucket-key", ",".join(part.name for part in clause.expressions)))
        if clause.args["buckets"] is not None:
            written.append(("bucket", clause.args["buckets"].name))
    return _each_once(written)


def _each_once(written: Sequence[tuple[str, str]]) -> dict[str, str]:
    raw: dict[str, str] = {}
    for name, value in written:
        if name in raw:
            raise InvalidRequest(f"option {name!r} is given twice", place=f"option {name}", hint="keep one of the two")
        raw[name] = value
    return raw


def _taken_out(raw: dict[str, str], name: str) -> list[tuple[str, ...]]:
    """The columns of an option that is a part of the definition; it is no option any more then."""
    return [find_option(name).parse(raw.pop(name), name)] if name in raw else []


# --- the tree


def _clauses(create: exp.Create, key: str) -> list[exp.Expr]:
    properties = create.args.get("properties")
    return [clause for clause in properties.expressions if clause.key == key] if properties else []


def _stated_once(what: str, stated: Sequence[T]) -> T | None:
    if len(stated) > 1:
        raise InvalidRequest(f"the {what} is stated {len(stated)} times", place=what, hint="state it once")
    return stated[0] if stated else None
