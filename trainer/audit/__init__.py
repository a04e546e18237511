"""Canary audits: what an attacker proves about a run's epsilon from below, beside what the accountant proves above."""
