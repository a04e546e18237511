"""This benchmark runs the settings of theorems, and compares the claims of the papers with results of the trainer.

Most modules here are one reproduction each. Such a module has ``NAME``, ``TITLE`` and ``reproduce(quick)``. The
function trains with `trainer.run` and returns a `benchmarks.papers.reproduction.Reproduction`, which is plain JSON.
"""
