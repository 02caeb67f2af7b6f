"""Curves of results as SVG files. Needs matplotlib, of the extra `bench`."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.results import Results

COLOURS = {
    "Stelae": "#0b6e4f",
    "Stelae, Arrow": "#0b6e4f",
    "Stelae, JSON": "#7fc8a9",
    "Redis": "#c1121f",
    "Redis, hiredis": "#c1121f",
    "Redis, redis-py's parser": "#f4a3a8",
    "PostgreSQL": "#336791",
    "RocksDB in process": "#5a5a5a",
    "LMDB in process": "#a9a9a9",
}
"""A store has the same colour in all plots."""


def can_draw() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


def draw_all(results: Results, folder: Path) -> dict[str, Path]:
    """Files of all plots, by their names."""
    plots = [plot for benchmark in results.benchmarks for plot in benchmark.of_kind("plot")]
    if plots:
        folder.mkdir(parents=True, exist_ok=True)
    return {plot["name"]: draw(plot, folder / f"{plot['name']}.svg") for plot in plots}


def draw(plot: Mapping[str, Any], path: Path) -> Path:
    """Draw what `common.Plot` has, both axes logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt
    from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

    # The same results give the same file.
    with mpl.rc_context({"svg.hashsalt": "stelae", "font.size": 10}):
        figure, axes = plt.subplots(figsize=(8, 4.5), layout="constrained")
        for name, points in plot["lines"].items():
            in_process = "in process" in name
            axes.plot(
                [x for x, _ in points], [y for _, y in points], label=name, color=COLOURS.get(name),
                linestyle="--" if in_process else "-", linewidth=2, marker="o", markersize=4,
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_yscale("log")
        if plot["ticks"]:
            axes.set_xticks(list(plot["ticks"].values()), list(plot["ticks"]))
        else:
            at = sorted({x for points in plot["lines"].values() for x, _ in points})
            axes.set_xticks(at, [f"{x:,.0f}" for x in at])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}" if y >= 1 else f"{y:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set(title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
        axes.grid(visible=True, color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
    return path
