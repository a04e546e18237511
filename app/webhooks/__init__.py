"""Webhooks: registered by owners, signed, delivered, and limited to addresses that the operator allows."""
