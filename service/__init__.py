"""The tablet server."""
