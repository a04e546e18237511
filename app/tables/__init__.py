"""Every table of the service, and the enumerations that columns hold. This package imports no code that uses the
tables."""
