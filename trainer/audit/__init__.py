"""Canary audits: lower bounds of a run's epsilon that an attacker proves, beside the accountant's upper bounds."""
