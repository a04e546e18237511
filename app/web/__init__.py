"""Pages for people, whose every asset is served from here, and the gates that requests pass."""
