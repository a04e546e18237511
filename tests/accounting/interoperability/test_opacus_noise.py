"""The noise that Opacus finds, beside what its own search returned."""

from __future__ import annotations
