"""The ledger: transitions of a budget, decided purely, and the append-only entries that record them."""
