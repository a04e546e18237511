"""The benchmarks compare this project with the field's other libraries. Results are committed; docs/measured.md is made
from them."""
