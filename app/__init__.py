"""The service: it answers HTTP requests, stores data by SQL, and runs worker processes. Each resource has a folder."""

VERSION = "0.1.0"
