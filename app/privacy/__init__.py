"""Privacy accounting over HTTP: events in, certified intervals out."""
