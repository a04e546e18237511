"""Every table of the service, and the words that columns hold. Nothing here imports what works with the rows."""
