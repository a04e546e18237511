"""The database: engine, sessions, declarative base."""
