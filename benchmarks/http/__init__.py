"""This benchmark compares calibrations over HTTP with the engine in process, and cached ones with a bare endpoint."""
