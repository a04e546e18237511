"""Shapes that several resources have in common on the wire: events, intervals, and what an answer is made of."""
