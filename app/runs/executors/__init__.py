"""Executors carry out the steps of a run: in the worker's own process, or on a Dask cluster."""
