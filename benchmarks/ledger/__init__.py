"""The ledger beside pgbench on one PostgreSQL, and its HTTP interface beside a bare endpoint: `make bench-ledger`."""
