"""Floor 4: the service, with HTTP, SQL and worker processes. Each resource has a folder."""

VERSION = "0.1.0"
