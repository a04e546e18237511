"""Means to inform the operator: logs without data, request ids, counters."""
