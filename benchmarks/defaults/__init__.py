"""This benchmark compares runs whose numbers the preset chooses with a grid of settings that were chosen by hand."""
