"""Commands that are carried out once per idempotency key, and answered the same each time."""
