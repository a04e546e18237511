"""This benchmark compares a private training step on a GPU with a plain one there and a private one on the host.
Without a GPU it measures nothing and says so."""
