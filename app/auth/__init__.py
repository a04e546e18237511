"""Authentication: API keys with scopes, and the token of a server that has no key yet."""
