"""Units of sizes."""

MIB = 1024 * 1024
"""Bytes in a mebibyte."""
