"""Floor 3: it executes Plans on arrays. All randomness and all bounds here are those for which the plan's events were
charged."""
