"""Questions about a deployment that only its operator can answer. They are asked once for each budget."""
