"""Calibrations over HTTP beside the engine in process, and remembered ones beside a bare endpoint."""
