"""A private training step on a GPU, beside a plain one there and a private one on the host. Without a GPU nothing is
measured, and that is said."""
