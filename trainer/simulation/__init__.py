"""This package simulates algorithms on synthetic rows. Public numbers and a public seed decide the results, which prove
nothing."""
