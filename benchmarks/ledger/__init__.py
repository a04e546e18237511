"""`make bench-ledger` compares the ledger with pgbench on the same PostgreSQL, and the ledger over HTTP with a bare
endpoint."""
