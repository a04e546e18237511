"""Ledger entries as bytes, and the register: entries about everything besides reservations that decides a charge."""
