"""This package contains the papers' formulas. Each paper has a folder, and each algorithm has a file that turns a spec
into a Plan.
"""
