"""Floor 3: executes Plans on arrays. Everything random or bounded here is what the plan's events were charged for."""
