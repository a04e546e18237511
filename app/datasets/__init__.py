"""Data sets: declared schema and bounds in public, rows in private files that no endpoint returns."""
