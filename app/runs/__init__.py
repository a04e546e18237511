"""Runs: a Plan charged to a budget and executed by a worker process on a data set."""
