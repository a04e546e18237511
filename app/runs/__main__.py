"""``python -m app.runs WORKER_ID PARENT_PID [SLOTS]``: a worker process."""

from __future__ import annotations

import sys

from app.kit import collector

if __name__ == "__main__":
    collector.pause()
    from app.runs.process import main

    collector.resume()
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
