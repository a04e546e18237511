"""The secrets of a database: their purposes, their versions, and the check values that recognise foreign secrets."""
