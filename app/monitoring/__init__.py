"""Health and metrics of this process and of the whole service, for the operator."""
