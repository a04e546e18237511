"""Reservations: budget held before noise is drawn, and what became of it."""
