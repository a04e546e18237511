"""Simulations of algorithms on synthetic rows: public numbers and a public seed decide them, and prove nothing."""
