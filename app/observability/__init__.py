"""Information for the operator: logs without data, request ids, counters."""
