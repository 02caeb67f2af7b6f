"""Tells Spark of `format("stelae")`: it looks into modules whose names begin with `pyspark_` for a DefaultSource."""

from __future__ import annotations

from stelae.spark.data_source import StelaeDataSource as DefaultSource

__all__ = ["DefaultSource"]
