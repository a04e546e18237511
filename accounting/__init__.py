"""Floor 1: the numerics of privacy. Events and a neighbouring relation in, certified intervals and costs out.

No I/O, no clock, no environment, no logging. NumPy and SciPy; dp-accounting in one adapter, imported lazily.
"""

#: Stored with every charge: a later engine that finds an older charge too low can tell which one made it.
ENGINE_VERSION = "1"
