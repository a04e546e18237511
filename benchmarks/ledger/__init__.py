"""`make bench-ledger` compares the ledger with pgbench on one PostgreSQL, and its HTTP interface with a bare
endpoint."""
