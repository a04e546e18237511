"""Health and metrics: what the operator is told of this process and of the whole service."""
