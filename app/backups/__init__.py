"""Backups: one file with what the database and the data folder had at one moment, and its way back."""
