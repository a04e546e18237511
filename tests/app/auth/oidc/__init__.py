"""Accounts of a provider."""
