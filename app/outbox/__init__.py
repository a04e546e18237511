"""What webhooks are to be told: written in the transaction that has it, and delivered by `app.webhooks`."""
