"""Floor 2: the papers' formulas. One folder per paper, one file per algorithm: a spec in, a Plan out."""
