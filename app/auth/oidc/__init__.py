"""Signing in by an OpenID Connect provider: it turns the provider's tokens into principals
(docs/operating/sign_in.md).
"""
