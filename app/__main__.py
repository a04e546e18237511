"""`python -m app`: the command `epsilond`, in this checkout."""

from __future__ import annotations

from app.cli.main import main

if __name__ == "__main__":
    main()
