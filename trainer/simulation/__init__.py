"""What an algorithm attains on synthetic rows: public numbers and a public seed decide it, and nothing is proved."""
