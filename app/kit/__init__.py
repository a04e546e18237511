"""Building blocks of every resource: field types, ids, idempotent commands, the application's context."""
