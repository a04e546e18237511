"""Side by side with the field's other libraries. Results are committed; README.md's figures are made from them."""
