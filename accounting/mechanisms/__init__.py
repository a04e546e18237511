"""One file per mechanism: its dominating pair, its moments, its closed forms."""
