"""Where the steps of a run are carried out: in the worker's own process, or on a Dask cluster."""
