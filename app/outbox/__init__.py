"""Messages for webhooks, written in the transaction that they are about and delivered by `app.webhooks`."""
