"""A private training step beside a plain one, both on CuPy. Without a GPU nothing is measured, and that is said."""
