"""Pages for people. Every asset is served from here; no page asks another machine for anything."""
