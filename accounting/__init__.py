"""Floor 1: the numerics of privacy. They turn events and a neighbouring relation into certified intervals and costs.

Nothing here does I/O, reads a clock or the environment, or logs. It needs NumPy and SciPy; one adapter imports
dp-accounting when it is used.

| question | module |
|---|---|
| what was done, under which relation | events (the vocabulary), relations, guarantees |
| which pair of distributions stands for a step, and what it costs | losses |
| what a composition costs | accountant (the rule), composition (the evaluators), fourier (contour integrals) |
| what steps with a stated delta cost | failure |
| what a list costs that only differs a little from the list that is accounted | discrepancy |
| which noise, steps, batch or probability meet a target | solve, targets |
| what one guarantee implies about another | conversions |
| what a charge costs in an adaptive budget | filters, units |
| what an attacker can do | trade_off, true_positive_rate |
| what another library answers, and how its events are read | second_opinion, dp_events, dp_accounting_adapter |
| what an answer states beside its number | convention, schedule_warnings, intervals, errors, numbers, canonical |
"""

#: Stored with every charge: a later engine that finds an older charge too low can tell which one made it.
ENGINE_VERSION = "3"
