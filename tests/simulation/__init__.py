"""A deterministic simulation of the ledger: its own code on storage in memory, under a seeded scheduler and faults.

What is real: the transition machine, the records, the journal's protocol (`app.ledger.journal`), commands under
idempotency keys (`app.idempotency.once`, `app.ledger.executor`), the release of holds, and the fence. What is
simulated: rows, locks and transactions, the place of the fence, clocks, processes, and clients. Everything runs in one
thread; whoever would wait for a database lets the scheduler choose who goes on. A seed repeats a run, to the step.
"""
