"""The benchmarks compare this project with other libraries of its field. Their results are committed, and
docs/measured.md is made from the results."""
