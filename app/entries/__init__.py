"""Ledger entries as bytes, and the register.

The register's entries are about everything that decides a charge, apart from reservations.
"""
