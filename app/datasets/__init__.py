"""Data sets. Their schema and bounds are declared in public. Their rows are in private files that no endpoint
returns."""
