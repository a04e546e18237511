"""Rounds of traffic, kill, recovery and audit: what `make test`, `make test-all` and `make soak` all run.

Each round draws the instant of its kill over the duration of a request, relative to the moment at which the first byte
of one was sent. The draws are stratified: one in each of as many equal parts of the span as there are rounds.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass, field

from tests.crash.auditor import audit
from tests.crash.connection import Connection
from tests.crash.history import Exchange, History
from tests.crash.ledger_view import read_ledger
from tests.crash.traffic import Traffic
from tests.crash.victims import Victim

#: Kills of each victim in `make test-all`, and in `make soak`; `make test` has one.
ROUNDS = 5
SOAK_ROUNDS = 60
#: At least this share of the kills lands between the first byte of a request and its reply: none of a single one.
LEAST_LANDED_SHARE = 0.2
#: The kills are drawn over so many typical durations of a request.
SPAN = 1.0
SEED = 3
# Commands that are decided before each kill.
WARM_UP = 40
RESEND_TIMEOUT_S = 60


@dataclass(frozen=True)
class Kill:
    """One kill.

    Attributes:
        typical_s: Median duration of a request before it.
        has_landed: Whether it came before the reply to the marked request, which then got no decision.
        in_flight: Commands that it cut off and that had not been decided before.
        decided_in_flight: How many of them the service had decided all the same, as it says when they are sent again.
    """

    typical_s: float
    has_landed: bool
    in_flight: int
    decided_in_flight: int


@dataclass
class Outcome:
    """What a campaign found; ``faults`` is empty where the promise was kept."""

    kills: list[Kill] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    commands: int = 0
    acknowledged: int = 0
    entries: int = 0

    @property
    def denied(self) -> int:
        return self.commands - self.acknowledged

    @property
    def landed(self) -> int:
        return sum(kill.has_landed for kill in self.kills)

    @property
    def in_flight(self) -> int:
        return sum(kill.in_flight for kill in self.kills)

    @property
    def decided_in_flight(self) -> int:
        return sum(kill.decided_in_flight for kill in self.kills)

    def check(self, rounds: int) -> None:
        """Assert that nothing is wrong, and that something could have been found: kills came between the first byte of
        a request and its reply, and there was much to keep. A single round may meet no command.
        """
        assert not self.faults, "\n".join(self.faults)
        assert len(self.kills) >= rounds
        assert self.landed >= int(LEAST_LANDED_SHARE * rounds), self
        assert rounds == 1 or self.in_flight > rounds, self
        assert min(self.acknowledged, self.denied) > rounds, self

    def figures(self) -> dict[str, float]:
        return {
            "kills": len(self.kills),
            "landed_between_first_byte_and_reply": self.landed,
            "typical_request_ms": round(1000 * statistics.median(kill.typical_s for kill in self.kills), 1),
            "commands_in_flight": self.in_flight,
            "decided_and_not_answered": self.decided_in_flight,
            "commands": self.commands,
            "acknowledged": self.acknowledged,
            "denied": self.denied,
            "entries": self.entries,
            "faults": len(self.faults),
        }

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in self.figures().items())


def run_campaign(victim: Victim, rounds: int) -> Outcome:
    """Kill ``victim``, whose server runs, so many times; audit after each time, and everything in the end."""
    random_numbers = random.Random(SEED)
    delays = [SPAN * (part + random_numbers.random()) / rounds for part in range(rounds)]
    random_numbers.shuffle(delays)
    outcome, whole = Outcome(), History()
    # If too few landed where they should, or cut too little off, the instants come earlier: a kill takes time, too, and
    # on a busy machine it may come after the reply.
    for number, delay in enumerate([each / 2**turn for turn in range(3) for each in delays], 1):
        if number > rounds and outcome.landed >= int(LEAST_LANDED_SHARE * rounds) and outcome.in_flight > rounds:
            break
        name, history = f"round {number}:", History()
        killed_at, marked, typical_s = _kill_in_traffic(victim, delay, name, history, random_numbers)
        in_flight = history.in_flight(killed_at)
        with Connection(victim.server.address) as connection:
            outcome.faults += [f"{name} {fault}" for fault in _audit_twice(connection, name, history, random_numbers)]
        decisions = history.decisions()
        outcome.kills.append(
            Kill(
                typical_s=typical_s,
                has_landed=marked.was_cut_off(killed_at),
                in_flight=len(in_flight),
                decided_in_flight=sum(all(answer.is_replayed for answer in decisions[sent]) for sent in in_flight),
            )
        )
        whole.exchanges += history.exchanges
        whole.seen += history.seen
    with Connection(victim.server.address) as connection:
        ledger = read_ledger(connection)
    outcome.faults += [f"in the end, {fault}" for fault in audit(whole, ledger)]
    decisions = whole.decisions()
    outcome.commands = len(decisions)
    outcome.acknowledged = sum(answers[0].is_success for answers in decisions.values())
    outcome.entries = sum(len(view.entries) for view in ledger)
    return outcome


def _kill_in_traffic(
    victim: Victim, delay: float, name: str, history: History, random_numbers: random.Random
) -> tuple[float, Exchange, float]:
    """Kill ``delay`` typical durations after the first byte of a request; the service is back.

    Returns:
        The moment of the kill, that request, and the typical duration in seconds.
    """
    traffic = Traffic(victim.server.address, name, history, random_numbers)
    with traffic.running():
        traffic.wait_for_decisions(WARM_UP)
        victim.take_aim()
        typical_s = traffic.typical_duration()
        marked = traffic.mark_next()
        time.sleep(max(0.0, marked.first_byte_at + delay * typical_s - time.monotonic()))
        killed_at = time.monotonic()
        victim.kill()
        victim.recover(traffic, name, history)
    return killed_at, marked, typical_s


def _audit_twice(connection: Connection, name: str, history: History, random_numbers: random.Random) -> list[str]:
    """What contradicts the promise as the kill left things, and once every key was sent again and is decided."""
    left = read_ledger(connection, name)
    faults = [f"after the kill: {fault}" for fault in audit(history, left)]
    history.seen += [entry for view in left for entry in view.entries]
    commands = list(history.sendings())
    random_numbers.shuffle(commands)
    for command in commands:
        deadline = time.monotonic() + RESEND_TIMEOUT_S
        while (exchange := history.exchange(connection, command)).is_undecided:
            assert time.monotonic() < deadline, exchange
            time.sleep(0.02)
    return faults + [f"after sending again: {fault}" for fault in audit(history, read_ledger(connection, name))]
