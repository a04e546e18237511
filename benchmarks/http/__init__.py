"""This benchmark compares new calibrations over HTTP with the engine alone, and cached ones with a bare endpoint."""
