"""This benchmark runs the settings of theorems, and compares what the paper claims with what the trainer measures.

A module here is one reproduction. It offers ``NAME``, ``TITLE`` and ``reproduce(quick)``, which trains with
`trainer.run` and returns what `benchmarks.papers.reproduction.Reproduction` describes: plain JSON.
"""
