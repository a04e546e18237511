"""`/v1/run-sweeps`: a grid of runs under one charge, of which all are released, or the best one alone."""
