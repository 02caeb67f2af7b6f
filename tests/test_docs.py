"""Goal: what pages and comments point to is there.

Method: every relative link of a page, its anchor too; every file that a page, a docstring or a comment names by its
path; the index of decisions against the pages. What pages say about behaviour is tested beside what behaves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.make_tables import TABLES, made, named_tables

ROOT = Path(__file__).parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
SOURCES = sorted(
    path
    for folder in ("stelae", "builder", "service", "pyspark_stelae", "tests", "benchmarks")
    for path in (ROOT / folder).rglob("*.py")
)
DECISIONS = ROOT / "docs" / "decisions"

LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
NAMED = re.compile(
    r"(?<![\w./-])((?:stelae|builder|service|pyspark_stelae|tests|benchmarks|deploy|docs)/[\w./-]*\w\.(?:py|md|yaml))"
)
ABSENT_ON_PURPOSE = {"stelae/deep/inside.py"}
"""Named by tests that need a file that is not there."""


def test_links_lead_somewhere() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in PAGES
        for link in links(page.read_text())
        if not leads_somewhere(page, link)
    ]
    assert broken == []


def test_files_that_are_named_exist() -> None:
    missing = [
        f"{file.relative_to(ROOT)}: {path}"
        for file in (*PAGES, *SOURCES)
        for path in sorted(set(NAMED.findall(file.read_text())) - ABSENT_ON_PURPOSE)
        if not (ROOT / path).exists()
    ]
    assert missing == []


def test_tables_are_what_the_code_declares() -> None:
    pages = sorted((ROOT / "docs").glob("*.md"))
    assert [page.name for page in pages if made(page) != page.read_text()] == [], "make docs"
    assert sorted(name for page in pages for name in named_tables(page)) == sorted(TABLES)


def test_decisions_are_numbered_without_a_gap() -> None:
    numbers = [int(page.name[:4]) for page in decisions()]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("page", sorted(DECISIONS.glob("0*.md")), ids=lambda page: page.stem)
def test_a_decision_has_a_title_a_status_and_a_date(page: Path) -> None:
    title, _, status, *_ = page.read_text().split("\n")
    assert re.fullmatch(rf"# {int(page.name[:4])}\. .+", title)
    assert re.match(r"Status: (accepted|replaced by \[\d+\]\([\w.-]+\))\. \d{4}-\d\d-\d\d\.", status)


def test_the_index_has_every_decision() -> None:
    rows = re.findall(r"^\| \[(\d+)\]\(([\w.-]+)\) \| (.+) \| (.+) \|$", (DECISIONS / "README.md").read_text(), re.M)
    assert rows == [index_row(page) for page in decisions()]


def index_row(page: Path) -> tuple[str, str, str, str]:
    """Number, file, title and status of a decision, as the index has them."""
    title, _, status, *_ = page.read_text().split("\n")
    number, _, words = title.removeprefix("# ").partition(". ")
    replaced = re.match(r"Status: replaced by \[(\d+)\]", status)
    return number, page.name, words, f"replaced by {replaced[1]}" if replaced else "accepted"


def decisions() -> list[Path]:
    return sorted(DECISIONS.glob("0*.md"))


def links(page: str) -> Iterator[str]:
    """Relative links outside of code."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    yield from (link for link in LINK.findall(text) if not re.match(r"[a-z]+:", link))


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path) if path else page
    if not target.exists():
        return False
    return not anchor or target.suffix != ".md" or anchor in anchors(target.read_text())


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page, flags=re.M | re.S)
    headings = re.findall(r"^#+ (.+)$", text, re.M)
    return {
        re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", h).lower()).replace(" ", "-") for h in headings
    }
