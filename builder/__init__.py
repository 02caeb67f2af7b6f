"""Spark jobs that build tables."""
