"""What only whoever operates the service can say of what it protects: asked once for each budget."""
