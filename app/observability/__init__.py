"""What the service tells its operator: logs without data, request ids, health."""
