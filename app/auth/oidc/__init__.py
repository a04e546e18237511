"""Signing in by an OpenID Connect provider: its tokens in, principals out (docs/operating/sign_in.md)."""
