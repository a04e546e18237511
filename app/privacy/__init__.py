"""Privacy accounting over HTTP. Requests have events, and answers have certified intervals."""
