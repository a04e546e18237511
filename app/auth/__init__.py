"""Who asks: API keys with scopes, and the loopback mode of a server that has none yet."""
