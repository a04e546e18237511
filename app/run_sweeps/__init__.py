"""`/v1/run-sweeps`: a grid of runs under one charge. Either all of them are released, or only the best one."""
