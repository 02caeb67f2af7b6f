"""Results as Markdown: `python -m benchmarks.report RESULTS.json ... [--into docs/benchmarks.md]`.

Without `--into` it is printed. With it, the part of that file between the two marks is replaced, and the plots go to a
folder beside it that has its name. Of several files, for runs of some benchmarks each, the last one counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import number
from benchmarks.plots import can_draw, draw_all
from benchmarks.results import Benchmark, Results, combine, load_results

BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"
MET = {True: "yes", False: "**no**", None: ""}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path, nargs="+", help="JSON files of `python -m benchmarks`")
    parser.add_argument("--into", type=Path, help="a Markdown file that has the marks")
    given = parser.parse_args(arguments)
    results = combine([load_results(path) for path in given.results])
    if given.into is None:
        print("\n".join(markdown(results, {})))
        return
    plots: dict[str, str] = {}
    if can_draw():
        drawn = draw_all(results, given.into.with_suffix(""))
        plots = {name: path.relative_to(given.into.parent).as_posix() for name, path in drawn.items()}
    text = given.into.read_text(encoding="utf-8")
    given.into.write_text(insert(text, markdown(results, plots), str(given.into)), encoding="utf-8")


def insert(text: str, lines: Sequence[str], place: str) -> str:
    """The text with these lines between the marks. SystemExit when it does not have them."""
    if text.count(BEGIN) != 1 or text.count(END) != 1 or text.index(BEGIN) > text.index(END):
        raise SystemExit(f"{place}: needs a line {BEGIN}, and below it a line {END}")
    before, _, rest = text.partition(BEGIN)
    return before + "\n".join([BEGIN, "", *lines, "", END]) + rest.partition(END)[2]


def markdown(results: Results, plots: Mapping[str, str]) -> list[str]:
    """Lines of all that was measured. `plots`: links by name."""
    lines = [*introduction(results), "", *targets(results)]
    for benchmark in results.benchmarks:
        lines += ["", *section(benchmark, plots)]
    return lines


def introduction(results: Results) -> list[str]:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in results.versions.items())
    size = "Quick run" if results.quick else "Full run"
    when = f"{results.started[:10]} at commit {results.commit or 'none'}, {results.seconds / 60:,.0f} minutes"
    memory = f"{float(machine['memory_bytes']) / 2**30:.0f} GiB"
    where = f"{machine['cores']} cores of {machine['processor']}, {memory}, {machine['system']}"
    return [f"{size} of {when}, on {where}. Load of the machine before: {results.load:.1f}.", "", f"{versions}."]


def targets(results: Results) -> list[str]:
    """All ratios that have a target."""
    wanted = [each for each in results.ratios() if each[2]["met"] is not None]
    if not wanted:
        return ["No ratio has a target."]
    met = sum(ratio["met"] for _, _, ratio in wanted)
    rows = [
        [
            benchmark.name,
            title,
            ratio["what"],
            ratio["unit"],
            f"{ratio['value']:.2f}",
            ratio["target"],
            MET[ratio["met"]],
        ]
        for benchmark, title, ratio in wanted
    ]
    headings = ["benchmark", "", "", "of", "ratio", "target", "met"]
    return [f"### Targets: {met} of {len(wanted)} met", "", *table(headings, rows, right={4})]


def section(benchmark: Benchmark, plots: Mapping[str, str]) -> list[str]:
    """One benchmark: facts, tables and plots as they were recorded."""
    lines = [f"### {benchmark.name.replace('_', ' ')}"]
    if benchmark.failed:
        lines += ["", "**This benchmark failed: what it had measured until then is below.**"]
    facts = {name: value for record in benchmark.of_kind("facts") for name, value in record["facts"].items()}
    if facts:
        told = (f"{name.replace('_', ' ')} {cell(value)}" for name, value in facts.items())
        lines += ["", "; ".join(told) + "."]
    for record in benchmark.records:
        if record["kind"] == "ratios":
            lines += ["", f"**{record['title']}**", "", *ratio_table(record["ratios"])]
        elif record["kind"] == "listing":
            rows = [[cell(each) for each in row] for row in record["rows"]]
            right = set(range(1, len(record["headings"])))
            lines += ["", f"**{record['title']}**", "", *table(record["headings"], rows, right)]
        elif record["kind"] == "plot" and record["name"] in plots:
            lines += ["", f"![{record['title']}]({plots[record['name']]})"]
        elif record["kind"] == "left out":
            lines += ["", f"Left out: {record['what']}. {record['why']}"]
    return lines


def ratio_table(ratios: Sequence[Mapping[str, Any]]) -> list[str]:
    rows = [
        [
            ratio["what"],
            number(ratio["ours"]),
            number(ratio["peer"]),
            ratio["unit"],
            f"{ratio['value']:.2f}",
            ratio["target"],
            MET[ratio["met"]],
        ]
        for ratio in ratios
    ]
    lines = table(["", "ours", "peer", "unit", "ratio", "target", "met"], rows, right={1, 2, 4})
    for ratio in ratios:
        if ratio["note"]:
            lines += ["", str(ratio["note"])]
    return lines


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], right: set[int]) -> list[str]:
    """A Markdown table; `right`: the columns that are numbers. One that is empty everywhere is left out."""
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    marks = ["---:" if i in right else "---" for i in kept]
    return [_line(headings[i] for i in kept), _line(marks), *(_line(row[i] for i in kept) for row in rows)]


def cell(value: str | float) -> str:
    return value if isinstance(value, str) else number(value)


def _line(cells: Iterator[str] | Sequence[str]) -> str:
    return "| " + " | ".join(each.replace("|", "\\|") for each in cells) + " |"


if __name__ == "__main__":
    main()
