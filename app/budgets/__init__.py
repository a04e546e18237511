"""Budgets and the reservations against them: what an analyst may still release, and what is held or spent."""
