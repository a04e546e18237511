"""Floor 2: the papers' formulas. Each paper has a folder, and each algorithm a file that turns a spec into a Plan."""
