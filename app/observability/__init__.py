"""What every part of the service tells its operator with: logs without data, request ids, counters."""
