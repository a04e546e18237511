"""Webhooks: registered by owners, signed, delivered, and bounded in what they reach."""
