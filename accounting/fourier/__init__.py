"""This package computes the profile of a composition by contour integration, from moment generating functions on lines.

For a pair with privacy loss L let M(z) = E_P e^(zL); over independent steps log M adds up. For c > 0

    delta(eps) = (1 / 2 pi i) * integral over Re z = c of M(z) e^(-z eps) / (z (z + 1)) dz.

* `pairs`: log f on the real line and on shifted lines, for the subsampled Gaussian pairs.
* `moments`: M at real tilts of a law that is given by nodes.
* `quadrature`: M at real tilts and on a line, by trapezoid rules with proved errors; a decreasing envelope of |M|.
* `tails`: bounds of the part that a quadrature's window leaves out.
* `mixture`: M of mixtures whose branch is seen.
* `steps`: everything that the contour needs to know about one step, whatever its mechanism.
* `contour`: the trapezoid rule along the line; its aliases are nonnegative and bounded by Chernoff.

The cost does not depend on how often a step is repeated.
"""
