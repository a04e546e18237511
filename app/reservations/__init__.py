"""Reservations: budget that is held before noise is drawn, and later spent or released."""
