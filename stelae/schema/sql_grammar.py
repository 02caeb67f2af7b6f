"""CREATE TABLE and ALTER TABLE as users of Paimon and Fluss write them, in Flink SQL and in Spark SQL: a dialect of
sqlglot.

SQL text in, sqlglot's tree of one statement out; stelae/schema/sql.py makes a schema, or a change of one, of it. What
is taken (docs/sql.md):

    create      CREATE TABLE [IF NOT EXISTS] [database.]table ( item, ... ) clause ... [;]
    item        name type [NOT NULL | NULL | COMMENT 'text' | key]...     or     key ( column, ... )
    key         [CONSTRAINT name] PRIMARY KEY, before or after it [[NOT] ENFORCED]
    clause      COMMENT 'text' | PARTITIONED BY ( column, ... ) | USING format
                | WITH ( 'name' = 'value', ... ) | TBLPROPERTIES ( 'name' = 'value', ... )
                | DISTRIBUTED [BY [HASH] ( column, ... )] [INTO n BUCKETS]

    alter       ALTER TABLE [IF EXISTS] [database.]table action [;]
    action      ADD [COLUMN | COLUMNS] [IF NOT EXISTS] new, ...     or     the same with ( new, ... )
                | SET [TBLPROPERTIES] ( 'name' = 'value', ... )
    new         name type [NULL | COMMENT 'text']...

sqlglot's own grammar is the union of many databases' and takes much that nobody would read afterwards, so the grammar
is written here, on its tokens and tree, and takes nothing that the schema does not use. This is the only module that
imports sqlglot, which takes a third of a second: import it where a statement is parsed, not at the head of a module.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import ClassVar, TypeVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import TokenError
from sqlglot.expressions import DType
from sqlglot.tokens import Token, TokenType  # type: ignore[attr-defined]  # where they are documented

from stelae.errors import InvalidRequest

T = TypeVar("T")

TYPES: Mapping[str, DType] = {
    "BOOLEAN": DType.BOOLEAN,
    "BOOL": DType.BOOLEAN,
    "TINYINT": DType.TINYINT,
    "BYTE": DType.TINYINT,
    "SMALLINT": DType.SMALLINT,
    "SHORT": DType.SMALLINT,
    "INT": DType.INT,
    "INTEGER": DType.INT,
    "BIGINT": DType.BIGINT,
    "LONG": DType.BIGINT,
    "FLOAT": DType.FLOAT,
    "REAL": DType.FLOAT,
    "DOUBLE": DType.DOUBLE,
    "DECIMAL": DType.DECIMAL,
    "DEC": DType.DECIMAL,
    "NUMERIC": DType.DECIMAL,
    "STRING": DType.TEXT,
    "CHAR": DType.CHAR,
    "CHARACTER": DType.CHAR,
    "VARCHAR": DType.VARCHAR,
    "BYTES": DType.BLOB,
    "BINARY": DType.BINARY,
    "VARBINARY": DType.VARBINARY,
    "DATE": DType.DATE,
    "TIME": DType.TIME,
    "TIMESTAMP": DType.TIMESTAMPNTZ,  # Flink's meaning: a wall clock without zone
    "TIMESTAMP_NTZ": DType.TIMESTAMPNTZ,
    "TIMESTAMP_LTZ": DType.TIMESTAMPLTZ,
    "ARRAY": DType.ARRAY,
    "MAP": DType.MAP,
    "ROW": DType.STRUCT,
    "STRUCT": DType.STRUCT,
}
"""Types by their first word."""

PARAMETERS: Mapping[DType, int] = {
    DType.DECIMAL: 2,
    DType.CHAR: 1,
    DType.VARCHAR: 1,
    DType.BINARY: 1,
    DType.VARBINARY: 1,
    DType.TIME: 1,
    DType.TIMESTAMPNTZ: 1,
    DType.TIMESTAMPLTZ: 1,
}
"""How many numbers in parentheses a type takes at most."""

UNSUPPORTED_TYPES: Mapping[str, str] = {
    "MULTISET": "use MAP<element, INT>",
    "VARIANT": "use STRING",
    "BLOB": "use BYTES",
    "VECTOR": "use ARRAY<FLOAT>",
    "GEOMETRY": "use BYTES",
    "GEOGRAPHY": "use BYTES",
    "INTERVAL": "use BIGINT",
    "JSON": "use STRING",
    "TEXT": "use STRING",
    "UUID": "use STRING",
    "DATETIME": "use TIMESTAMP",
    "TIMESTAMPTZ": "use TIMESTAMP_LTZ",
}

CLAUSES = "COMMENT, PARTITIONED BY, WITH, TBLPROPERTIES, USING or DISTRIBUTED"

NOT_ADDED: Mapping[str, tuple[str, ...]] = {
    "PARTITION": ("(",),
    "PARTITIONS": ("(",),
    "PRIMARY": ("KEY",),
    "UNIQUE": ("(",),
    "CHECK": ("(",),
    "FOREIGN": ("KEY",),
    "WATERMARK": ("FOR",),
    "DISTRIBUTION": ("BY", "INTO"),
}
"""What ALTER TABLE ... ADD would add in other systems, by its first word: the words that may follow, and that show that
it is not the name of a column.
"""


def parse_create(sql: str) -> exp.Create:
    """The tree of the one CREATE TABLE in `sql`."""
    tree = _parse(sql, StelaeParser, "CREATE TABLE ...")
    assert isinstance(tree, exp.Create)  # noqa: S101 - what its _parse_statement returns
    return tree


def parse_alter(sql: str) -> exp.Alter:
    """The tree of the one ALTER TABLE in `sql`. Its actions are columns or properties."""
    tree = _parse(sql, AlterParser, "ALTER TABLE ...")
    assert isinstance(tree, exp.Alter)  # noqa: S101 - what its _parse_statement returns
    return tree


def _parse(sql: str, grammar: type[StelaeParser], expected: str) -> exp.Expr | None:
    dialect = Stelae()
    try:
        words = dialect.tokenize(sql)
    except TokenError as exc:
        found = re.search(r"Missing (.+) from \d+:(\d+)$", str(exc.__cause__))  # which quote, and where it opened
        raise InvalidRequest(
            f"the statement ends before {found[1]} closes" if found else f"the statement cannot be read: {exc}",
            place=place_of(sql, int(found[2])) if found else None,
        ) from exc
    while words and words[-1].token_type == TokenType.SEMICOLON:
        words.pop()
    if not words:
        raise InvalidRequest("there is no statement", hint=f"write {expected}")
    for word in words:
        if word.token_type == TokenType.SEMICOLON:
            raise InvalidRequest(
                "there are several statements", place=place_of(sql, word.start), hint="give one at a time"
            )
    try:
        (tree,) = grammar(dialect=dialect).parse(words, sql)
    except RecursionError:
        raise InvalidRequest("the types are nested too deeply") from None
    return tree


def place_of(sql: str, offset: int) -> str:
    """Line and column of a character; people count from one."""
    line_start = sql.rfind("\n", 0, offset) + 1
    return f"line {sql.count(chr(10), 0, offset) + 1}, column {offset - line_start + 1}"


class StelaeParser(parser.Parser):
    """The grammar. A method takes its tokens or raises InvalidRequest with the place; none goes back."""

    # --- the statement

    def _parse_statement(self) -> exp.Expr:
        if not self._match_text_seq("CREATE"):
            hint = "stelae alter takes it" if self._word() == "ALTER" else None
            raise self._error(f"expected CREATE TABLE, found {self._found()}", hint=hint)
        if not self._match_text_seq("TABLE"):
            kind = "OR REPLACE" if self._word() == "OR" else self._found()
            raise self._error(f"CREATE {kind} is not supported", hint="write CREATE TABLE [IF NOT EXISTS]")
        exists = self._match_text_seq("IF", "NOT", "EXISTS")
        table = self._table()
        if self._word() in ("AS", "LIKE"):
            raise self._error(
                f"CREATE TABLE ... {self._word()} is not supported", hint="declare the columns in parentheses"
            )
        if self._curr.token_type != TokenType.L_PAREN:
            raise self._error(f"expected the columns in parentheses, found {self._found()}")
        schema = exp.Schema(this=table, expressions=self._list(self._column_or_key, "a column"))
        clauses: list[exp.Expr] = []
        while self._curr:
            clauses += self._clause()
        properties = exp.Properties(expressions=clauses) if clauses else None
        return exp.Create(this=schema, kind="TABLE", exists=exists, properties=properties)

    def _table(self) -> exp.Table:
        parts = [self._name("a table name")]
        while self._match(TokenType.DOT):
            parts.append(self._name("a table name"))
        if len(parts) > 2:
            raise self._error(
                f"the table name has {len(parts)} parts",
                self._prev,
                "write database.table; the warehouse takes the place of a catalog",
            )
        return exp.Table(this=parts[-1], db=parts[0] if len(parts) == 2 else None)

    # --- columns and keys

    def _column_or_key(self) -> exp.Expr:
        if self._word() == "WATERMARK" and self._word(1) == "FOR":
            raise self._error("WATERMARK is not supported", hint="leave it out: builds are not windowed by time")
        if self._word() == "PRIMARY" and self._word(1) == "KEY":
            return self._key()
        if self._word() == "CONSTRAINT" and self._word(2) in ("PRIMARY", "UNIQUE", "CHECK", "FOREIGN"):
            self._advance(2)
            if self._word() == "PRIMARY":
                return self._key()
        follows = {"UNIQUE": "(", "CHECK": "(", "FOREIGN": "KEY"}.get(self._word())
        if follows and self._next.text.upper() == follows:
            raise self._error(
                f"{self._word()} is not supported", hint="the one constraint of a table is its PRIMARY KEY"
            )
        return self._column()

    def _key(self) -> exp.PrimaryKey:
        self._expect("PRIMARY", "KEY")
        self._match_enforced()
        key = exp.PrimaryKey(expressions=self._list(lambda: self._name("a column name"), "a column name"))
        self._match_enforced()
        return key

    def _match_enforced(self) -> None:
        """NOT ENFORCED is what Flink asks for. Stelae's keys are unique whatever is written."""
        if not self._match_text_seq("NOT", "ENFORCED"):
            self._match_text_seq("ENFORCED")

    def _column(self) -> exp.ColumnDef:
        name = self._name("a column name")
        if self._word() == "AS":
            raise self._computed(name)
        data_type = self._type(f"column {name.name!r}")
        constraints: list[exp.ColumnConstraint] = []
        while self._curr and self._curr.token_type not in (TokenType.COMMA, TokenType.R_PAREN):
            constraint = self._constraint(name)
            if constraint is not None:
                constraints.append(exp.ColumnConstraint(kind=constraint))
        return exp.ColumnDef(this=name, kind=data_type, constraints=constraints)

    def _constraint(self, column: exp.Identifier) -> exp.Expr | None:
        """One word on a column; None where it says what holds anyway."""
        if self._match_text_seq("NOT", "NULL"):
            return exp.NotNullColumnConstraint()
        if self._match_text_seq("NULL"):
            return None
        if self._match_text_seq("COMMENT"):
            return exp.CommentColumnConstraint(this=exp.Literal.string(self._string("a comment in quotes")))
        if self._word() == "CONSTRAINT" and self._word(2) == "PRIMARY":
            self._advance(2)
        if self._match_text_seq("PRIMARY", "KEY"):
            self._match_enforced()
            return exp.PrimaryKeyColumnConstraint()
        word = self._word()
        if word in ("AS", "GENERATED"):
            raise self._computed(column)
        if word in ("FIRST", "AFTER"):
            raise self._error(
                f"{word} is not supported, at column {column.name!r}", hint="columns that are added come last"
            )
        if word in ("AUTO_INCREMENT", "AUTOINCREMENT", "IDENTITY"):
            raise self._error(f"{word} is not supported", hint="name the column in the option 'auto-increment.fields'")
        if word in ("DEFAULT", "METADATA", "UNIQUE", "CHECK", "REFERENCES", "COLLATE", "MASK", "CONSTRAINT"):
            raise self._error(
                f"{word} is not supported, at column {column.name!r}", hint="columns take what the input gives"
            )
        raise self._error(
            f"expected a comma or a parenthesis after column {column.name!r}, found {self._found()}",
            hint="a column is: name TYPE [NOT NULL] [COMMENT 'text'] [PRIMARY KEY NOT ENFORCED]",
        )

    def _computed(self, column: exp.Identifier) -> InvalidRequest:
        return self._error(
            f"column {column.name!r} is computed, which is not supported", hint="compute it in the input"
        )

    # --- types

    def _type(self, place: str) -> exp.DataType:
        """A type without nullability, which belongs to its column or to the type around it."""
        token, word = self._curr, self._word()
        if word in UNSUPPORTED_TYPES:
            raise self._error(f"the type {word} is not supported, at {place}", hint=UNSUPPORTED_TYPES[word])
        if word not in TYPES:
            near = difflib.get_close_matches(word, TYPES, n=1, cutoff=0.7)
            hint = f"did you mean {near[0]}?" if near else "docs/sql.md lists the types"
            raise self._error(f"expected a type at {place}, found {self._found()}", hint=hint)
        self._advance()
        kind = TYPES[word]
        if kind in (DType.CHAR, DType.BINARY) and self._match_text_seq("VARYING"):
            kind = DType.VARCHAR if kind == DType.CHAR else DType.VARBINARY
        if kind == DType.DOUBLE:
            self._match_text_seq("PRECISION")
        if kind in (DType.ARRAY, DType.MAP):
            return self._collection(kind, word, place)
        if kind == DType.STRUCT:
            return self._row(word, place)
        numbers = self._numbers(word, PARAMETERS.get(kind, 0))
        if word in ("TIME", "TIMESTAMP"):
            local = self._match_text_seq("WITH", "LOCAL", "TIME", "ZONE")
            if (local and word == "TIME") or self._word() == "WITH":
                raise self._error(
                    f"the type {word} with a time zone is not supported, at {place}",
                    token,
                    "use TIMESTAMP_LTZ for instants, TIMESTAMP for wall-clock times",
                )
            if local:
                kind = DType.TIMESTAMPLTZ
            else:
                self._match_text_seq("WITHOUT", "TIME", "ZONE")
        return exp.DataType(this=kind, expressions=[exp.DataTypeParam(this=exp.Literal.number(n)) for n in numbers])

    def _numbers(self, word: str, most: int) -> list[int]:
        if not most or self._curr.token_type != TokenType.L_PAREN:
            return []
        start = self._curr
        numbers = self._list(self._number, "a number")
        if len(numbers) > most:
            raise self._error(f"{word} takes {most} number{'s' if most > 1 else ''} at most", start)
        return numbers

    def _collection(self, kind: DType, word: str, place: str) -> exp.DataType:
        places = ("element",) if kind == DType.ARRAY else ("key", "value")
        self._expect_symbol(TokenType.LT, f"< after {word}")
        inner = []
        for index, part in enumerate(places):
            if index:
                self._expect_symbol(TokenType.COMMA, f"a comma and the type of the {part}")
            inner.append(self._nullable(self._type(f"the {part} of {place}")))
        self._expect_symbol(TokenType.GT, f"> after the type of the {places[-1]}")
        return exp.DataType(this=kind, expressions=inner, nested=True)

    def _row(self, word: str, place: str) -> exp.DataType:
        close = TokenType.R_PAREN if self._curr.token_type == TokenType.L_PAREN else TokenType.GT
        if close == TokenType.GT and self._curr.token_type != TokenType.LT:
            raise self._error(f"expected the fields of {word} in < >, found {self._found()}")
        fields = self._list(lambda: self._field(place), "a field", close)
        return exp.DataType(this=DType.STRUCT, expressions=fields, nested=True)

    def _field(self, place: str) -> exp.ColumnDef:
        name = self._name("a field name")
        self._match(TokenType.COLON)
        data_type = self._nullable(self._type(f"field {name.name!r} of {place}"))
        if self._match_text_seq("COMMENT") or self._curr.token_type == TokenType.STRING:
            self._string("a comment in quotes")  # fields have none of their own: docs/sql.md says so
        return exp.ColumnDef(this=name, kind=data_type)

    def _nullable(self, data_type: exp.DataType) -> exp.DataType:
        if self._match_text_seq("NOT", "NULL"):
            data_type.set("nullable", False)
        else:
            self._match_text_seq("NULL")
        return data_type

    # --- clauses

    def _clause(self) -> list[exp.Expr]:
        start = self._curr
        if self._match_text_seq("COMMENT"):
            return [exp.SchemaCommentProperty(this=exp.Literal.string(self._string("a comment in quotes")))]
        if self._match_text_seq("PARTITIONED", "BY"):
            columns = self._list(self._partition_column, "a column name")
            return [exp.PartitionedByProperty(this=exp.Tuple(expressions=columns))]
        if self._match_text_seq("WITH") or self._match_text_seq("TBLPROPERTIES"):
            return list(self._list(self._property, "an option"))
        if self._match_text_seq("USING"):
            name = self._name("stelae, paimon or fluss")
            if name.name.lower() not in ("stelae", "paimon", "fluss"):
                raise self._error(
                    f"USING {name.name} is not supported", self._prev, "leave it out, or write USING stelae"
                )
            return [exp.FileFormatProperty(this=exp.var(name.name.lower()))]
        if self._match_text_seq("DISTRIBUTED"):
            return [self._distribution(start)]
        word = self._word()
        if word in ("AS", "LIKE", "SELECT"):
            raise self._error(
                f"CREATE TABLE ... {word} is not supported", hint="create the table, then build it from the data"
            )
        if word == "LOCATION":
            raise self._error("LOCATION is not supported", hint="a table lives in its warehouse")
        if word == "OPTIONS":
            raise self._error("OPTIONS is not supported", hint="write WITH (...) or TBLPROPERTIES (...)")
        if word in ("STORED", "ROW"):
            raise self._error(f"{word} is not supported", hint="data files have one form: leave it out")
        if word in ("CLUSTERED", "SORTED", "SKEWED", "CLUSTER"):
            raise self._error(
                f"{word} is not supported", hint="buckets are set by the options 'bucket' and 'bucket-key'"
            )
        raise self._error(f"expected {CLAUSES}, found {self._found()}")

    def _partition_column(self) -> exp.Identifier:
        name = self._name("a column name")
        if self._curr.token_type == TokenType.L_PAREN:
            raise self._error("partition transforms are not supported", hint="add a column that holds the value")
        if self._word():
            raise self._error(
                f"partition column {name.name!r} has a type here",
                hint="declare it among the columns, and give its name alone in PARTITIONED BY",
            )
        return name

    def _property(self) -> exp.Property:
        if self._curr.token_type == TokenType.STRING:
            key = self._string("an option name in quotes")
        else:
            key = self._name("an option name in quotes").name
            while self._match(TokenType.DOT):
                key += "." + self._name("an option name in quotes").name
        if not self._match(TokenType.EQ):
            raise self._error(f"expected = after option {key!r}, found {self._found()}", hint="write 'name' = 'value'")
        return exp.Property(this=exp.Literal.string(key), value=exp.Literal.string(self._property_value(key)))

    def _property_value(self, key: str) -> str:
        """Text in quotes; Spark also takes bare numbers and booleans."""
        if self._curr.token_type == TokenType.STRING:
            return self._string("a value in quotes")
        sign = "-" if self._match(TokenType.DASH) else ""
        if self._curr.token_type == TokenType.NUMBER or (not sign and self._word() in ("TRUE", "FALSE")):
            self._advance()
            return sign + self._prev.text.lower()
        raise self._error(f"expected the value of option {key!r} in quotes, found {self._found()}")

    def _distribution(self, start: Token) -> exp.DistributedByProperty:
        columns: list[exp.Identifier] = []
        buckets = None
        if self._match_text_seq("BY"):
            if self._word() == "RANGE":
                raise self._error("DISTRIBUTED BY RANGE is not supported", hint="buckets are by hash")
            self._match_text_seq("HASH")
            columns = self._list(lambda: self._name("a column name"), "a column name")
        if self._match_text_seq("INTO"):
            buckets = exp.Literal.number(self._number())
            self._expect("BUCKETS")
        if not columns and buckets is None:
            raise self._error("DISTRIBUTED says neither by what nor into how many buckets", start)
        return exp.DistributedByProperty(expressions=columns, kind="HASH", buckets=buckets)

    # --- tokens

    def _word(self, ahead: int = 0) -> str:
        """The unquoted word at, or `ahead` of, the current token, in capitals; "" if there is none."""
        index = self._index + ahead
        token = self._tokens[index] if index < len(self._tokens) else None
        return token.text.upper() if token is not None and token.token_type == TokenType.VAR else ""

    def _name(self, what: str) -> exp.Identifier:
        if self._curr.token_type == TokenType.STRING:
            raise self._error(f"expected {what}, found text in quotes", hint="quote names with `back quotes`")
        if self._curr.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            raise self._error(f"expected {what}, found {self._found()}", hint="quote unusual names with `back quotes`")
        self._advance()
        return exp.to_identifier(self._prev.text, quoted=self._prev.token_type == TokenType.IDENTIFIER)

    def _string(self, what: str) -> str:
        if self._curr.token_type != TokenType.STRING:
            raise self._error(f"expected {what}, found {self._found()}")
        self._advance()
        return self._prev.text

    def _number(self) -> int:
        if self._curr.token_type != TokenType.NUMBER or not self._curr.text.isdigit() or len(self._curr.text) > 10:
            raise self._error(f"expected a whole number, found {self._found()}")
        self._advance()
        return int(self._prev.text)

    def _list(self, item: Callable[[], T], what: str, close: TokenType = TokenType.R_PAREN) -> list[T]:
        """Items with commas between them, in parentheses or in < >; at least one."""
        open_, symbols = (TokenType.L_PAREN, "()") if close == TokenType.R_PAREN else (TokenType.LT, "<>")
        self._expect_symbol(open_, f"{symbols[0]} and {what}")
        if self._curr.token_type == close:
            raise self._error(f"expected {what}, found {self._found()}")
        items = [item()]
        while self._match(TokenType.COMMA):
            items.append(item())
        self._expect_symbol(close, f"a comma or {symbols[1]}")
        return items

    def _expect(self, *words: str) -> None:
        if not self._match_text_seq(*words):
            raise self._error(f"expected {' '.join(words)}, found {self._found()}")

    def _expect_symbol(self, symbol: TokenType, what: str) -> None:
        if not self._match(symbol):
            raise self._error(f"expected {what}, found {self._found()}")

    def _found(self) -> str:
        return self._curr.text if self._curr else "the end of the statement"

    def _error(self, message: str, token: Token | None = None, hint: str | None = None) -> InvalidRequest:
        token = token or self._curr
        return InvalidRequest(message, place=place_of(self.sql, token.start) if token else None, hint=hint)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """What sqlglot's own methods call."""
        raise self._error(message, token)


class AlterParser(StelaeParser):
    """The grammar of ALTER TABLE."""

    def _parse_statement(self) -> exp.Expr:
        if not self._match_text_seq("ALTER"):
            hint = "stelae create takes it" if self._word() == "CREATE" else None
            raise self._error(f"expected ALTER TABLE, found {self._found()}", hint=hint)
        if not self._match_text_seq("TABLE"):
            raise self._error(f"ALTER {self._found()} is not supported", hint="write ALTER TABLE")
        exists = self._match_text_seq("IF", "EXISTS")
        table = self._table()
        actions: list[exp.Expr]
        if self._match_text_seq("ADD"):
            actions = self._added()
        elif self._match_text_seq("SET"):
            if not self._match_text_seq("TBLPROPERTIES") and self._curr.token_type != TokenType.L_PAREN:
                raise self._error(f"expected options in parentheses after SET, found {self._found()}")
            actions = list(self._list(self._property, "an option"))
        elif not self._curr:
            raise self._error("ALTER TABLE says no change", self._prev, "write ADD COLUMN or SET")
        else:
            raise self._error(
                f"ALTER TABLE ... {self._found()} is not supported", hint="columns are added and options set, no more"
            )
        if self._curr:
            raise self._error(
                f"expected the end of the statement, found {self._found()}",
                hint="one change at a time: ADD several columns, or SET several options",
            )
        return exp.Alter(this=table, kind="TABLE", exists=exists, actions=actions)

    def _added(self) -> list[exp.Expr]:
        if self._word() in ("COLUMN", "COLUMNS") and self._word(1) not in TYPES:
            self._advance()
        exists = self._match_text_seq("IF", "NOT", "EXISTS")
        if self._curr.token_type == TokenType.L_PAREN:
            columns = self._list(self._new_column, "a column")
        else:
            columns = [self._new_column()]
            while self._match(TokenType.COMMA):
                columns.append(self._new_column())
        for column in columns:
            column.set("exists", exists)
        return list(columns)

    def _new_column(self) -> exp.ColumnDef:
        start, follows = self._curr, self._next.text.upper() if self._next else ""
        if follows in NOT_ADDED.get(self._word(), ()) or (self._word() == "CONSTRAINT" and self._word(1) not in TYPES):
            raise self._error(
                f"ALTER TABLE ... ADD {self._word()} is not supported",
                hint="what a table is created with stays: create another one, and build it",
            )
        column = self._column()
        if any(constraint.kind.key == "primarykeycolumnconstraint" for constraint in column.args["constraints"]):
            raise self._error(
                f"new column {column.name!r} can't be in the primary key",
                start,
                "the key of a table stays: create another one, and build it",
            )
        return column


class StelaeTokenizer(tokens.Tokenizer):
    """Names in back quotes, text in single or double quotes, a quote within text doubled; every word is plain."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ["`"]
    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'", '"']
    STRING_ESCAPES: ClassVar[list[str]] = ["'", '"']
    KEYWORDS: ClassVar[dict[str, TokenType]] = {}
    COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]


class Stelae(Dialect):
    """`sqlglot.parse_one(sql, dialect="stelae")`."""

    Tokenizer = StelaeTokenizer
    Parser = StelaeParser
