"""One file per sampling scheme: the pair of distributions that it induces, per relation."""
