"""This benchmark compares a private training step on a GPU with a plain step on the GPU and a private step on the host.
Without a GPU it measures nothing and says so."""
