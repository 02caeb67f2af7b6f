"""The OpenAPI page: what FastAPI knows of its own routes, and the hot ones, which it does not know. Its examples are in
openapi_examples.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from stelae.service.http.openapi_examples import (
    EXAMPLES,
    INSERT_TEMPLATE,
    LOOKUP_TEMPLATE,
    PREFIX_LOOKUP_TEMPLATE,
    Example,
    Json,
)
from stelae.version import __version__
from stelae.wire.http_api import (
    ARROW,
    COLUMNS_PARAMETER,
    DEFAULT_LIMIT,
    ENCODED,
    JSON,
    LIMIT_PARAMETER,
    PAGE_TOKEN_PARAMETER,
    PROBLEM_JSON,
    ROWS_PARAMETER,
    SNAPSHOT_HEADER,
    TYPED,
)

ABOUT = """
Point, batch and prefix lookups in primary-key tables that Spark builds, and inserts of keys that are not there.

Values are typed by the table's schema: integers are numbers, DECIMAL is a string of digits, dates and times are ISO
8601, BYTES is base64, NaN and infinities are the strings `NaN`, `Infinity`, `-Infinity`. Errors are [problem
details](https://www.rfc-editor.org/rfc/rfc9457). Every answer names its snapshot in the header `Stelae-Snapshot`; the
same header on a request pins it.
"""


_TABLE_PARAMETER: Json = {
    "name": "table",
    "in": "path",
    "required": True,
    "description": "`database.table`; a bare name is in database `default`.",
    "schema": {"type": "string"},
    "example": "shop.users",
}

_LOOKUP_PARAMETERS: Sequence[Json] = (
    _TABLE_PARAMETER,
    {
        "name": SNAPSHOT_HEADER,
        "in": "header",
        "description": "Answer from this snapshot, or not at all.",
        "schema": {"type": "integer", "minimum": 1},
    },
)


def openapi_page(api: FastAPI) -> Json:
    """The whole page."""
    page = get_openapi(
        title=api.title, version=__version__, routes=api.routes, description=ABOUT.strip(),
        tags=[{"name": name} for name in ("lookups", "inserts", "tables", "probes")],
    )  # fmt: skip
    page["paths"] = {
        LOOKUP_TEMPLATE: {"get": _lookup(), "post": _batch_lookup()},
        PREFIX_LOOKUP_TEMPLATE: {"post": _prefix_lookup()},
        INSERT_TEMPLATE: {"post": _insert()},
        **page["paths"],
    }
    schemas = page.setdefault("components", {}).setdefault("schemas", {})
    schemas.update(SCHEMAS)
    for unused in ("HTTPValidationError", "ValidationError"):  # FastAPI's; bad input gets problem details here
        schemas.pop(unused, None)
    for path in page["paths"].values():
        for operation in path.values():
            if "HTTPValidationError" in str(operation["responses"].pop("422", None)):
                operation["responses"]["404"] = _problem_response("No such table.", ())
    page["paths"]["/readyz"]["get"]["responses"]["503"] = {
        "description": "Not yet, or not any more.",
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Readiness"}}},
    }
    return page


def _lookup() -> Json:
    return _operation(
        "get",
        LOOKUP_TEMPLATE,
        "LookupAnswer",
        summary="The row of one key",
        description="One query parameter for each column of the primary key. A key that is not there is an answer, "
        "`found: false`; a table that is not there is an error. A key with a null in it needs POST.",
        parameters=[
            {
                "name": "key",
                "in": "query",
                "description": "The columns of the primary key, `user_id=42`. Each once.",
                "required": True,
                "style": "form",
                "explode": True,
                "schema": {"type": "object", "additionalProperties": {"type": "string"}},
                "examples": {
                    e.name: {"value": {name: value for name, value in e.query.items() if name != "columns"}}
                    for e in EXAMPLES
                    if (e.method, e.template) == ("get", LOOKUP_TEMPLATE)
                },
            },
            {
                "name": "columns",
                "in": "query",
                "description": "Columns of the answer, with commas between them; all by default. (If the key has a "
                "column of this name, the parameter is the key; select columns by POST then.)",
                "schema": {"type": "string"},
                "example": "city,name",
            },
        ],
    )


def _arrow_parameter(name: str, description: str, schema: Json) -> Json:
    return {"name": name, "in": "query", "description": f"Of Arrow requests. {description}", "schema": schema}


_COLUMNS = _arrow_parameter(
    COLUMNS_PARAMETER, "Columns of the rows, with commas between them; all by default.", {"type": "string"}
)
_ROWS = _arrow_parameter(
    ROWS_PARAMETER,
    "The form of rows: structs of typed columns, or the bytes that are stored (docs/format.md#rows).",
    {"type": "string", "enum": [TYPED, ENCODED], "default": TYPED},
)
_LIMIT = _arrow_parameter(
    LIMIT_PARAMETER, "Rows of the page.", {"type": "integer", "minimum": 1, "default": DEFAULT_LIMIT}
)
_PAGE_TOKEN = _arrow_parameter(
    PAGE_TOKEN_PARAMETER, "`stelae.next_page_token` of the page before, with the same body.", {"type": "string"}
)
_ARROW_CONTENT: Json = {
    "schema": {"type": "string", "format": "binary", "description": "An Arrow IPC stream: docs/http.md#arrow."}
}


def _batch_lookup() -> Json:
    return _operation(
        "post",
        LOOKUP_TEMPLATE,
        "BatchAnswer",
        summary="The rows of many keys",
        description="Rows are in the order of the keys, `null` where there is none. All are from one snapshot.",
        parameters=(_COLUMNS, _ROWS),
        body="BatchRequest",
    )


def _prefix_lookup() -> Json:
    return _operation(
        "post",
        PREFIX_LOOKUP_TEMPLATE,
        "PrefixAnswer",
        summary="The rows whose keys start alike",
        description="A prefix is any of the partition columns and the first so many of the other key columns. Rows "
        "come in key order, partition by partition. A next page continues after the last row of the page before, in "
        "the snapshot that is current then; pin the snapshot to read all pages from one.",
        parameters=(_COLUMNS, _LIMIT, _PAGE_TOKEN),
        body="PrefixRequest",
    )


def _insert() -> Json:
    operation = _operation(
        "post",
        INSERT_TEMPLATE,
        "InsertAnswer",
        summary="The rows of many keys, inserted where they are not there",
        description="Rows are in the order of the keys. A key that has no row gets one: with an id where the table "
        "mints ids, and null in all other columns. It is durable before it is answered. A key that is there twice, in "
        "one request or in several at once, is inserted once. `null` in place of a row: the table does not have the "
        "partition of this key; partitions come with builds. New keys of one bucket are inserted all or none. The "
        "request can always be repeated: a key that is there keeps its row.",
        parameters=(_COLUMNS, _ROWS),
        body="BatchRequest",
        tag="inserts",
        shared=(_TABLE_PARAMETER,),
    )
    examples = [e for e in EXAMPLES if e.template == INSERT_TEMPLATE]
    responses = operation["responses"]
    responses["200"]["description"] = "Found in the snapshot that the header names, or inserted above it."
    responses["400"]["description"] = "The request is wrong, or the table takes no inserts. Nothing was inserted."
    responses["404"] = _problem_response("No such table.", _with(examples, 404))
    responses["409"] = _problem_response(
        "Another server owns the table; the hint has its URL. Nothing was inserted.", _with(examples, 409)
    )
    responses["503"]["description"] = (
        "The table can't be written now: its snapshot is loading, the disk is full, ... It is not known which of the "
        "keys that had no row were inserted; asking again for the same keys says so."
    )
    return operation


def _operation(
    method: str,
    template: str,
    answer: str,
    *,
    summary: str,
    description: str,
    parameters: Sequence[Json] = (),
    body: str | None = None,
    tag: str = "lookups",
    shared: Sequence[Json] = _LOOKUP_PARAMETERS,
) -> Json:
    """A route that FastAPI does not know. `shared`: its parameters that others have, too."""
    examples = [e for e in EXAMPLES if (e.method, e.template) == (method, template)]
    operation: Json = {
        "tags": [tag],
        "operationId": f"{method}{template.rpartition('/')[2].title().replace('-', '')}",
        "summary": summary,
        "description": description,
        "parameters": [*shared, *parameters],
        "responses": {
            "200": {
                "description": "From the snapshot that the header names.",
                "headers": {SNAPSHOT_HEADER: {"schema": {"type": "integer"}}},
                "content": {
                    JSON: {
                        "schema": _ref(answer),
                        "examples": {e.name: {"value": e.answer} for e in _with(examples, 200)},
                    }
                },
            },
            "400": _problem_response("The request is wrong.", _with(examples, 400)),
            "404": _problem_response("No such table, or the pinned snapshot is not open.", _with(examples, 404)),
            "503": {
                **_problem_response("No snapshot is served yet.", ()),
                "headers": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
            },
        },
    }
    if body is not None:
        operation["requestBody"] = {
            "required": True,
            "content": {
                JSON: {"schema": _ref(body), "examples": {e.name: {"value": e.body} for e in examples}},
                ARROW: _ARROW_CONTENT,
            },
        }
        operation["responses"]["200"]["content"][ARROW] = _ARROW_CONTENT
        operation["responses"]["413"] = _problem_response("The body, the batch or the page is over a limit.", ())
        operation["responses"]["415"] = _problem_response("The body is neither JSON nor Arrow.", ())
    return operation


def _with(examples: Sequence[Example], status: int) -> list[Example]:
    return [example for example in examples if example.status == status]


def _problem_response(description: str, examples: Sequence[Example]) -> Json:
    content: Json = {"schema": _ref("Problem")}
    if examples:
        content["examples"] = {e.name: {"value": e.answer} for e in examples}
    return {"description": description, "content": {PROBLEM_JSON: content}}


def _ref(name: str) -> Json:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: str, **properties: Json) -> Json:
    """An object of these members and no others. `required`: their names, with spaces between them."""
    return {
        "type": "object",
        "required": required.split(),
        "additionalProperties": False,
        "properties": properties,
    }


_ROW_OR_NULL: Json = {"anyOf": [_ref("Row"), {"type": "null"}]}
_NUMBER: Json = {"type": "integer"}
_TEXT: Json = {"type": "string"}
_NAMES: Json = {"type": ["array", "null"], "items": _TEXT, "description": "All by default."}

SCHEMAS: Mapping[str, Json] = {
    "Row": {
        "type": "object",
        "description": "The selected columns, by name, in the order of the selection.",
        "additionalProperties": True,
    },
    "LookupAnswer": _object("found row snapshot", found={"type": "boolean"}, row=_ROW_OR_NULL, snapshot=_NUMBER),
    "BatchRequest": _object(
        "keys",
        keys={
            "type": "array",
            "description": "Each an object with all primary-key columns, or the bare value where it is one column. "
            "Nullable columns may be null.",
            "items": {},
        },
        columns=_NAMES,
    ),
    "BatchAnswer": _object("rows snapshot", rows={"type": "array", "items": _ROW_OR_NULL}, snapshot=_NUMBER),
    "InsertAnswer": _object(
        "rows inserted snapshot",
        rows={
            "type": "array",
            "items": _ROW_OR_NULL,
            "description": "`null`: the table does not have the partition of this key.",
        },
        inserted={
            "type": "array",
            "items": {"type": "boolean"},
            "description": "Aligned with the keys: whether this request inserted the row. Of a key that is there "
            "several times, the first.",
        },
        snapshot=_NUMBER,
    ),
    "PrefixRequest": _object(
        "prefix",
        prefix={"type": "object", "additionalProperties": True},
        limit={"type": ["integer", "null"], "minimum": 1, "default": DEFAULT_LIMIT},
        page_token={"type": ["string", "null"], "description": "`next_page_token` of the page before, unchanged."},
        columns=_NAMES,
    ),
    "PrefixAnswer": _object(
        "rows next_page_token snapshot",
        rows={"type": "array", "items": _ref("Row")},
        next_page_token={"type": ["string", "null"], "description": "null: there are no more rows."},
        snapshot=_NUMBER,
    ),
    "Problem": {
        "type": "object",
        "description": "RFC 9457 problem details.",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": _TEXT | {"description": "Stable: urn:stelae:problem: and the kind of error."},
            "title": _TEXT,
            "status": _NUMBER,
            "detail": _TEXT | {"description": "What failed, and what was expected."},
            "place": _TEXT | {"description": "Where: a member, a column, a table."},
            "hint": _TEXT | {"description": "What to do."},
        },
    },
}
