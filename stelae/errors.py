"""The error tree: one kind for each thing that a caller can do next.

    StelaeError
    ├── InvalidRequest    fix the request: wrong type, unknown column, bad SQL, an option that is not there
    │   └── TooLarge      the same, because of a limit: send less at a time
    ├── NotFound          a table or a snapshot that does not exist (a key that is not there is an answer, no error)
    ├── Conflict          somebody else committed first: read again, then retry
    │   └── AlreadyExists the name is taken
    ├── Unavailable       retry later: not loaded yet, storage or server out of reach
    └── CorruptData       stop and keep the evidence: checksum, order or format is not what was written

Errors of other libraries are translated where they enter (`raise ... from exc`). `STATUS` is the one table that maps
kinds to HTTP; the server writes with it, the client reads with it and raises the same classes.
"""

from __future__ import annotations

from collections.abc import Mapping


class StelaeError(Exception):
    """Base of every error that Stelae raises on purpose.

    `message` says what failed and what was expected, `place` where (a table, column, file, option, request field),
    `hint` what to do next.
    """

    type = "internal"
    """Stable name of the kind: the last part of the problem type on the wire."""

    def __init__(self, message: str, *, place: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.hint = hint

    def __str__(self) -> str:
        where = f" [{self.place}]" if self.place else ""
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{hint}"

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles errors from executors; keyword-only arguments need a hand.
        return _restore, (type(self), self.message, self.place, self.hint)


class InvalidRequest(StelaeError):
    """The caller's input is wrong; nothing was changed. Fix it and send it again."""

    type = "invalid-request"


class TooLarge(InvalidRequest):
    """A limit was passed (body, batch, page); the limit is an option and named in the hint."""

    type = "too-large"


class NotFound(StelaeError):
    """The named table or snapshot does not exist."""

    type = "not-found"


class Conflict(StelaeError):
    """Another writer committed first; nothing of this writer was kept."""

    type = "conflict"


class AlreadyExists(Conflict):
    """The name is taken: put-if-absent found it present."""

    type = "already-exists"


class Unavailable(StelaeError):
    """Not now: the same call may work later."""

    type = "unavailable"


class CorruptData(StelaeError):
    """Stored bytes are not what was written. Nothing is repaired silently; keep the file."""

    type = "corrupt-data"


STATUS: Mapping[type[StelaeError], int] = {
    TooLarge: 413,
    InvalidRequest: 400,
    NotFound: 404,
    AlreadyExists: 409,
    Conflict: 409,
    Unavailable: 503,
    CorruptData: 500,
    StelaeError: 500,
}
"""HTTP status of each kind."""

PROBLEM_TYPE_PREFIX = "urn:stelae:problem:"
"""Prefix of the RFC 9457 `type` member; the rest is the kind's `type`."""

BY_TYPE: Mapping[str, type[StelaeError]] = {kind.type: kind for kind in STATUS}
"""Class of each kind, by its wire name."""


def problem(error: StelaeError) -> dict[str, object]:
    """The RFC 9457 problem details of an error, ready for JSON."""
    body: dict[str, object] = {
        "type": PROBLEM_TYPE_PREFIX + error.type,
        "title": error.type.replace("-", " "),
        "status": STATUS[type(error)],
        "detail": error.message,
    }
    if error.place:
        body["place"] = error.place
    if error.hint:
        body["hint"] = error.hint
    return body


def from_problem(body: Mapping[str, object]) -> StelaeError:
    """The error that `problem` described; an unknown kind becomes a plain StelaeError."""
    kind = BY_TYPE.get(str(body.get("type", "")).removeprefix(PROBLEM_TYPE_PREFIX), StelaeError)
    place, hint = body.get("place"), body.get("hint")
    return kind(
        str(body.get("detail") or body.get("title") or "unknown problem"),
        place=None if place is None else str(place),
        hint=None if hint is None else str(hint),
    )


def _restore(kind: type[StelaeError], message: str, place: str | None, hint: str | None) -> StelaeError:
    return kind(message, place=place, hint=hint)
