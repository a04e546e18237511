"""Requests that the OpenAPI document allows and forbids, sent to the service in memory and held against the document.

The document is all that the cases are made of: values of its schemas, its examples, both broken in one place, and
sequences that follow its links. Another one of the same seed sends the same. A fault is told with the command that
repeats the request.
"""

from __future__ import annotations

import copy
import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import FlakyStrategyDefinition
from schemathesis import Case, GenerationMode, HookContext, Response, openapi
from schemathesis.config import (
    AnalysisConfig,
    ChecksConfig,
    ConstantsConfig,
    GenerationConfig,
    PositiveDataAcceptanceConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
    SimpleCheckConfig,
)
from schemathesis.core.failures import FailureGroup
from schemathesis.python.asgi import ASGIClient
from schemathesis.schemas import APIOperation, BaseSchema
from schemathesis.specs.openapi import stateful

from app.auth.principal import Scope
from app.auth.service import create_key
from app.db.database import Database
from app.fence.watching import fenced_context
from app.kit.process_pool import ProcessPool
from app.main import create_app
from app.runs.progress import ProgressFeed
from app.settings import Settings
from tests.contract.make_openapi import committed

BASE_URL = "http://127.0.0.1:8000"
KEY = "Idempotency-Key"
#: Operations whose examples work as they stand on a new service.
MAKERS = ("create_budget", "upload_dataset", "create_run", "create_run_sweep", "create_key")
#: Steps of a sequence at most, and sequences of a round.
STEPS, SEQUENCES = 8, 20

CHECKS = ChecksConfig(
    # What a schema allows may still be impossible (a target out of reach, a relation without a theorem) or not there.
    positive_data_acceptance=PositiveDataAcceptanceConfig(enabled=False),
    # A body may name something else that is not there, and a key that is sent again replays its answer about what was
    # deleted since.
    ensure_resource_availability=SimpleCheckConfig(enabled=False),
    # Who may call what is shown by a table of all routes and scopes.
    ignored_auth=SimpleCheckConfig(enabled=False),
)


class Campaign:
    """Cases of one seed against one service.

    Attributes:
        answers: How often each operation answered with each status.
        faults: What was answered against the document, the first of each kind, with the command that repeats it.
        schema: The document as the generator reads it.
    """

    def __init__(self, app: Any, token: str, number: int) -> None:
        self.answers: Counter[tuple[str, int]] = Counter()
        self.faults: dict[tuple[str, str], str] = {}
        self._seed = number
        self._session = ASGIClient(app, BASE_URL)
        self._session.headers["Authorization"] = f"Bearer {token}"
        self.schema: BaseSchema = openapi.from_dict(_readable(committed()), config=_configuration(number))
        self.schema.app = app
        self.schema.hooks.register_hook_with_name(self._make_answerable, "flatmap_case")
        # By the name of a parameter of paths, what exists: learned from the header Location.
        self._existing: dict[str, list[str]] = {}

    @cached_property
    def operations(self) -> list[APIOperation]:
        return [found.ok() for found in self.schema.get_all_operations()]

    def send(self, case: Case) -> Response:
        """Send one case, without a look at its answer."""
        response = case.call(session=self._session)
        self.answers[case.operation.label, response.status_code] += 1
        for location in response.headers.get("location", ()):
            self._learn(location)
        return response

    def make_examples(self) -> None:
        """What the document's examples make, so that there is something to ask about."""
        for operation in self.operations:
            maker = operation.definition.raw["operationId"]
            if maker in MAKERS:
                for number, example in enumerate(_examples(operation, "application/json")):
                    headers = {KEY: f"{maker}-{number}"}
                    answer = self.send(operation.Case(body=example, headers=headers, media_type="application/json"))
                    assert answer.status_code in (201, 202), answer.text

    def try_operation(self, operation: APIOperation, mode: GenerationMode, count: int) -> None:
        """``count`` cases of one operation, each by itself."""

        @seed(self._seed)
        @_settings(count)
        @given(case=operation.as_strategy(generation_mode=mode))
        def check(case: Case) -> None:
            self._validate(case, self.send(case))

        check()

    def try_sequences(self, cases: int) -> None:
        """So many cases in sequences, each of which goes on with what an earlier one was answered."""
        campaign = self
        # The generator begins with operations whose every field that names something has a maker; ours are optional.
        with mock.patch.object(stateful, "is_likely_root_transition", _needs_nothing):
            machine = self.schema.as_state_machine()

        class Sequences(machine):  # type: ignore[misc, valid-type]
            # Else the operation whose name comes first begins most of them.
            rule_order_seed = campaign._seed

            def call(self, case: Case, **kwargs: Any) -> Response:
                return campaign.send(case)

            def validate_response(self, response: Response, case: Case, *_: Any, **__: Any) -> None:
                campaign._validate(case, response, recorder=self.recorder)

        wanted = self.answers.total() + cases
        for number in itertools.count(self._seed):
            # The service keeps what was made, so that the same steps may be answered otherwise the next time. The
            # generator notices, gives its round up, and another one begins.
            with suppress(FlakyStrategyDefinition):
                missing = wanted - self.answers.total()
                seed(number)(Sequences).run(settings=_settings(min(SEQUENCES, -(-missing // STEPS))))
            if self.answers.total() >= wanted:
                return

    def _validate(self, case: Case, response: Response, **more: Any) -> None:
        try:
            case.validate_response(response, **more)
        except FailureGroup as group:
            for failure in group.exceptions:
                kind = f"{type(failure).__name__} {response.status_code}"
                self.faults.setdefault((case.operation.label, kind), str(group))

    def _make_answerable(self, context: HookContext, case: Case) -> st.SearchStrategy[Case]:
        """Half of the cases that the schemas allow: about what exists, with a body that the document gives as example.

        What comes out of a schema alone is seldom more than well-formed: most of it is 404, or 422.
        """
        if case.meta is None or case.meta.generation.mode is not GenerationMode.POSITIVE:
            return st.just(case)
        return st.tuples(st.booleans(), st.booleans(), st.integers(0, 2**16)).map(
            lambda drawn: self._changed(case, *drawn)
        )

    def _changed(self, case: Case, exists: bool, is_example: bool, number: int) -> Case:
        examples = _examples(case.operation, case.media_type)
        if is_example and examples:
            case.body = copy.deepcopy(examples[number % len(examples)])
        for name in case.path_parameters:
            if exists and name in self._existing:
                case.path_parameters[name] = self._existing[name][number % len(self._existing[name])]
        if KEY in case.headers and exists:
            # A key of its own: others would be found used, and nothing would be done.
            case.headers[KEY] = f"key-{sum(self.answers.values())}-{number}"
        return case

    def _learn(self, location: str) -> None:
        for operation in self.operations:
            prefix, _, rest = operation.path.partition("{")
            if operation.method == "get" and rest.endswith("}") and location.startswith(prefix):
                self._existing.setdefault(rest[:-1], []).append(location.removeprefix(prefix))


def _configuration(number: int) -> SchemathesisConfig:
    project = ProjectConfig(
        base_url=BASE_URL,
        checks=CHECKS,
        # Constants would be looked for in the service's source, which takes long and is no part of the document.
        analysis=AnalysisConfig(constants=ConstantsConfig(enabled=False)),
        generation=GenerationConfig(with_security_parameters=False),
    )
    return SchemathesisConfig(seed=number, projects=ProjectsConfig(default=project))


def _readable(part: Any) -> Any:
    """A copy without discriminators: the generator takes the first of several values that lead to one schema for all.

    Each schema says by itself which values its discriminating field has.
    """
    if isinstance(part, dict):
        return {name: _readable(value) for name, value in part.items() if name != "discriminator"}
    return [_readable(value) for value in part] if isinstance(part, list) else part


def _needs_nothing(operation: APIOperation, *_: Any) -> bool:
    return not operation.path_parameters


def _examples(operation: APIOperation, media_type: str | None) -> list[Any]:
    content = operation.definition.raw.get("requestBody", {}).get("content", {}).get(media_type, {})
    examples = [example["value"] for example in content.get("examples", {}).values()]
    # An audit is one with few canaries, too, and takes no seconds then.
    return [example | {"trials": 50} if "calibration" in example else example for example in examples]


def _settings(count: int) -> settings:
    return settings(
        max_examples=count,
        stateful_step_count=STEPS,
        # No shrinking: it would send thousands of cases more, and the first fault already has its command.
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


@contextmanager
def campaign(database_url: str, folder: Path, number: int) -> Iterator[Campaign]:
    """A campaign against a new service that has one key, which may do everything as often as it likes."""
    database = Database(database_url)
    pool = ProcessPool(size=1, seconds=20.0, memory_bytes=2**31)
    settings = Settings(
        data_dir=folder, database_url=database_url, workers=0, requests_per_second=0, concurrent_requests=0
    )
    context = fenced_context(settings, database, processes=pool, audit_processes=pool)
    key = create_key(context, "cases", [Scope.ADMIN])
    assert key is not None, "it is asked for whatever keys there are"
    app = create_app(context)
    # Of runs that stay queued there is nothing to tell: a stream ends at once.
    app.state.progress = ProgressFeed(context, interval_s=0.01, keep_alive_s=0.01, max_stream_s=0.02)
    try:
        yield Campaign(app, key.token, number)
    finally:
        pool.close()
        database.dispose()
