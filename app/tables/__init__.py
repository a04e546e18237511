"""Every table of the service, and the words that columns hold. This package imports no code that works with the
rows."""
