"""What a run attains with the numbers that are chosen for it, beside a grid of settings that were chosen by hand."""
