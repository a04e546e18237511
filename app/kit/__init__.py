"""What every resource of the service uses: field types, ids, idempotent commands, the application's context."""
