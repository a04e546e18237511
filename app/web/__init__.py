"""Pages for people, with all their assets, and the gates that requests pass."""
