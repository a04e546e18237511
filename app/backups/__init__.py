"""Backups: one file with the contents of the database and the data folder at one time, and the way to restore it."""
