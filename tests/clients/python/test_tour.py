"""The client does all that the documents show and all that the service answers, on a server that trains.

A new endpoint without a method fails here.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from epsilond_client import (
    Client,
    Forbidden,
    Interval,
    InvalidRequest,
    NotFound,
    ProgressMessage,
    Run,
    RunFailed,
    Unauthenticated,
    load,
)
from epsilond_client.events import gaussian

from app.entries.subjects import Subject
from tests.clients.python.conftest import token_of
from tests.clients.python.proxy import Answer, proxy_before
from tests.crash.server_process import running_server
from tests.databases import DatabaseFactory

ROOT = Path(__file__).parents[3]
README = ROOT / "clients" / "python" / "README.md"
HOW_TO = ROOT / "docs" / "how-to" / "client.md"
SNIPPET = re.compile(r"^```py(?:thon)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s:]+)\)")
OPENAPI: dict[str, Any] = json.loads((ROOT / "openapi.json").read_text())
OPERATIONS = {f"{method.upper()} {path}" for path, operations in OPENAPI["paths"].items() for method in operations}
TRAINING: dict[str, Any] = {
    "algorithm": "dp_nsgd",
    "model": {"kind": "logistic_regression"},
    "target": {"kind": "approximate_dp", "epsilon": 3, "delta": 1e-5},
    "batch_size": 20,
    "iterations": 10,
    "sampling": "poisson",
    "gradient_bound": {"kind": "normalize", "regularizer": 1.0},
    "hyperparameters": {"step_size": 0.1},
}
ALLOWED = {"EPSILOND_WEBHOOK_ADDRESSES": "https://hooks.example/"}
COLUMNS = [
    {"name": "x", "type": "number", "lower": -1.0, "upper": 1.0},
    {"name": "y", "type": "category", "categories": ["0", "1"]},
]


def example(path: str) -> dict[str, Any]:
    """The first documented example of a POST."""
    content = OPENAPI["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    first: dict[str, Any] = next(iter(content["examples"].values()))["value"]
    return first


def template(request: httpx2.Request) -> str:
    """The operation that a request is."""
    path = request.url.path
    literal_first = sorted(OPENAPI["paths"], key=lambda known: known.count("{"))
    for known in literal_first:
        if re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", known), path):
            return f"{request.method} {known}"
    raise AssertionError(f"{request.method} {path} is no operation of the contract")


@pytest.fixture(scope="module")
def url(sqlite_databases: DatabaseFactory, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this module's own: it trains, and after the last test it has keys."""
    folder = tmp_path_factory.mktemp("tour")
    with (
        running_server(sqlite_databases.migrated(), folder, EPSILOND_WORKERS="1", **ALLOWED) as server,
        token_of(server),
    ):
        host, port = server.address
        yield f"http://{host}:{port}"


@pytest.mark.thorough
def test_the_documents_do_what_they_say(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("EPSILOND_URL", url)
    monkeypatch.delenv("EPSILOND_API_KEY", raising=False)
    for page, least in ((README, 4), (HOW_TO, 3)):
        snippets = SNIPPET.findall(page.read_text())
        assert len(snippets) >= least, page
        scope = {"__name__": "snippet"}
        for number, source in enumerate(snippets):
            exec(compile(source, f"{page.name}:{number}", "exec"), scope)
        scope["client"].close()  # type: ignore[attr-defined]
    assert re.search(r"0\.\d+ <= epsilon <= 0\.\d+", capsys.readouterr().out)


def test_every_operation_is_reached(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One test: what is reached is counted in one place, and a worker is started once."""
    reached = set()
    send = httpx2.Client.send

    def record(self: httpx2.Client, request: httpx2.Request, **options: Any) -> httpx2.Response:
        reached.add(template(request))
        return send(self, request, **options)

    monkeypatch.setattr(httpx2.Client, "send", record)
    with Client(url) as client:
        stateless(client)
        ledger(client, tmp_path)
        training(client, tmp_path)
        sweeps_and_audits(client)
        following_where_no_stream_is_to_be_had(client, url)
        keys(client, url)
    assert OPERATIONS - reached == set(), "operations that no method of the client reaches"


def stateless(client: Client) -> None:
    assert client.health.live().status
    assert client.health.ready().status
    assert "epsilond" in client.health.metrics()
    answer = client.account([gaussian(4.0, count=100)], delta=[1e-5, 1e-6])
    assert isinstance(answer.points[0].epsilon, Interval)
    assert answer.points[0].epsilon.upper < answer.points[1].epsilon.upper
    assert client.convert({"kind": "zcdp", "rho": 0.1}, {"kind": "approximate_dp", "delta": 1e-5}).guarantee.epsilon > 0
    tuning = example("/v1/tuning-cost")
    assert client.tuning_cost(tuning.pop("events"), **tuning).charge
    assert client.import_history(**example("/v1/import")).differences is not None
    pasted = client.import_call(
        "make_private(noise_multiplier=4.0)", dataset_size=60, batch_size=6, steps=9, delta=1e-5
    )
    assert pasted.call.function == "make_private"
    assert client.calibrate(**example("/v1/calibrate")).plan_hash
    assert client.calibrate_events(**example("/v1/calibrate/events")).value > 0.0
    assert client.calibrate(**example("/v1/calibrate"), dtype="float64").dtype == "float64"
    assert client.sweep(**example("/v1/sweep"))
    assert client.advise(**example("/v1/advise"), algorithms=["clipped_acsa"])
    assert client.assumptions(**example("/v1/assumptions"))
    names = [algorithm.name for algorithm in client.algorithms.list()]
    assert client.algorithms.get(names[0]).name == names[0]
    assert client.algorithms.compare(dataset_size=1000, dimension=10)


def ledger(client: Client, folder: Path) -> None:
    budget = client.budgets.create(
        "tour",
        neighboring_relation="add_or_remove_one",
        filter={"kind": "zcdp", "rho": 1.0},
        labels={"team": "a"},
    )
    assert client.budgets.get(budget, delta=1e-5).report.epsilon.upper == 0
    for number in range(5):
        client.budgets.create(
            f"child {number}", neighboring_relation="add_or_remove_one", filter={"kind": "zcdp", "rho": 0.1},
            parent_id=budget.id,
        )  # fmt: skip
    children = [child.name for child in client.budgets.list(parent=budget, page_size=2)]
    assert sorted(children) == [f"child {number}" for number in range(5)], "every page"
    events = [gaussian(10.0, count=4)]
    assert client.reservations.quote(budget, events)["id"] is None
    voided = client.reservations.create(budget, events, purpose="tour")
    client.reservations.extend(voided, expires_in=7200)
    assert client.reservations.void(voided).state == "voided"
    held = client.reservations.create(budget, events, purpose="tour")
    client.reservations.start(held)
    client.reservations.commit(held)
    assert client.reservations.get(held).charged.rho == pytest.approx(0.02)
    assert len(list(client.reservations.list(budget, state="committed"))) == 1
    with pytest.raises(NotFound, match="no certificate"):
        client.reservations.certificate(held)
    certified = client.budgets.create(
        "certified", neighboring_relation="add_or_remove_one", filter={"epsilon": 3, "delta": 1e-5}
    )
    proved = client.reservations.create(certified, events, purpose="tour", certificate=True)
    assert hashlib.sha256(client.reservations.certificate(proved)).hexdigest() == proved.certificate
    client.budgets.correct(budget, events=events, reason="was forgotten")
    client.budgets.set_limit(budget, filter={"kind": "zcdp", "rho": 2.0}, reason="more data")
    assert sum(group.amount.rho for group in client.budgets.spending(budget, group_by="purpose")) > 0
    entries = list(client.budgets.entries(budget, page_size=3))
    assert [entry.sequence for entry in entries] == sorted(entry.sequence for entry in entries)
    assert len({entry.id for entry in entries}) == len(entries) == 9
    limit = {"kind": "zcdp", "rho": 3.0}
    asked, another, _ = (client.limit_requests.create(budget, filter=limit, reason="more people") for _ in range(3))
    assert client.limit_requests.withdraw(asked).state == "withdrawn"
    assert client.limit_requests.refuse(another, reason="no").state == "refused"
    assert client.limit_requests.get(asked).state == "withdrawn"
    assert len(list(client.limit_requests.list(budget=budget, page_size=2))) == 3
    client.budgets.state_deployment(budget, curator="the clinic")
    assert client.budgets.deployment(budget).answers.curator == "the clinic"
    webhook = client.webhooks.create(budget, url="https://hooks.example/a", events=["limit_requested"])
    assert webhook.secret.startswith("whsec_")
    assert webhook.secret not in repr(webhook)
    assert [each.id for each in client.webhooks.of(budget)] == [webhook.id]
    assert client.webhooks.disable(webhook).state == "disabled"
    assert client.webhooks.enable(webhook).state == "active"
    assert client.webhooks.rotate(webhook).secret != webhook.secret
    assert list(client.webhooks.deliveries(webhook)) == []
    assert client.webhooks.get(webhook).waiting == 0
    client.webhooks.delete(webhook)
    checkpoint = client.ledger.checkpoint()
    assert client.ledger.verify(checkpoint=checkpoint.note).valid
    assert client.ledger.verify(prices=True).prices.too_low == 0
    assert client.ledger.proof(entries[0], tree_size=checkpoint.tree_size)
    assert client.ledger.consistency(1, checkpoint.tree_size)
    begun = {entry["subject"] for entry in client.ledger.register(kind="register")}
    assert begun <= {str(subject) for subject in Subject}
    file = client.ledger.export(folder / "ledger.ndjson")
    assert all(json.loads(line) for line in file.read_text().splitlines())
    assert [found.name for found in folder.iterdir()] == ["ledger.ndjson"], "no half of a file"
    with pytest.raises(NotFound):
        client.ledger.export(folder / "none.csv", format="csv", budget="bud_none")
    assert [found.name for found in folder.iterdir()] == ["ledger.ndjson"]


def training(client: Client, folder: Path) -> None:
    rows = "x,y\n" + "".join(f"{number / 100 - 1},{int(number > 100)}\n" for number in range(200))
    dataset = client.datasets.upload(
        rows.encode(), name="rows", filename="rows.csv", declared_size=200, columns=COLUMNS, label="y", public=True
    )
    assert client.datasets.get(dataset).columns[1]["categories"] == ["0", "1"]
    assert dataset.id in [found.id for found in client.datasets.list()]
    root = client.budgets.create("of rows", neighboring_relation="add_or_remove_one", filter={"kind": "zcdp", "rho": 1})
    private = client.datasets.upload(
        f"{rows}0,1\n".encode(), name="p", filename="p.csv", declared_size=9, capacity=900, columns=COLUMNS, label="y",
        budget_id=root.id,
    )  # fmt: skip
    more = {"change": "appended", "reason": "more"}
    added = client.datasets.add_version(private, f"{rows}0,1\n1,1\n".encode(), filename="p.csv", **more)
    assert (added.version, added.owner_report["rows"]) == (2, 202)
    assert [each.change for each in client.datasets.versions(private)] == [None, "appended"]
    assert list(client.datasets.shared_contents()) == []
    patients = client.datasets.upload(
        b"x,y,id\n0,1,K-1\n1,0,K-2\n", name="patients", filename="p.csv", declared_size=9, columns=COLUMNS, label="y",
        budget_id=root.id, person_column="id", held_out_share=0.25,
    )  # fmt: skip
    assert (patients.person_column, patients.rows_per_person, patients.held_out_share) == ("id", 1, 0.25)
    left = client.datasets.delete_persons(patients, ["K-2"], reason="withdrawals", change="replaced")
    assert (left.version, left.change, left.owner_report) == (2, "replaced", None)
    assert [each.erased for each in client.datasets.versions(patients)] == [True, False]
    heard: list[ProgressMessage] = []
    run = client.runs.wait(client.runs.create(dataset_id=dataset.id, **TRAINING), on_progress=heard.append)
    assert run.state == "succeeded"
    assert (heard[-1].state, heard[-1].progress.done) == ("succeeded", 10)
    assert [message.state for message in client.runs.events(run)] == ["succeeded"]
    assert client.runs.wait(run, timeout=5).id == run.id
    arrays = client.runs.arrays(run)
    model = client.runs.model(run)
    assert arrays.keys() >= {"weights", "bias"}
    np.testing.assert_array_equal(arrays["weights"], np.array(model.parameters["weights"]))
    loaded = client.runs.load(run)
    rows = [[0.25] * len(loaded.feature_names), [-0.5] * len(loaded.feature_names)]
    asked = client.runs.predict(run, rows)
    assert list(asked.predictions) == loaded.predict(rows).tolist() == load(run, client=client).predict(rows).tolist()
    assert np.array(asked["probabilities"]) == pytest.approx(loaded.predict_proba(rows), rel=1e-12)
    turned = client.runs.predict(run, [row[::-1] for row in rows], columns=loaded.feature_names[::-1])
    assert turned == asked
    with pytest.raises(InvalidRequest, match="/rows/0/0"):
        client.runs.predict(run, [["a"] * len(loaded.feature_names)])
    for nameless in ([dict.fromkeys(loaded.feature_names, 0.0)], list(loaded.feature_names), [1.0, 2.0]):
        with pytest.raises(TypeError, match=r"row 0 .* takes dicts and tables"):
            client.runs.predict(run, nameless)
    file = client.runs.download(run, folder / "model.npz")
    assert load(file).document == loaded.document
    assert client.runs.report(run).statement
    assert client.runs.report(run, format="markdown").startswith("#")
    assert "<html" in client.runs.report(run, format="html")
    assert client.runs.get(run).has_ended
    assert run.id in [found.id for found in client.runs.list()]
    long = client.runs.create(dataset_id=dataset.id, **TRAINING | {"iterations": 100_000, "batch_size": 100})
    with pytest.raises(TimeoutError, match="after 0 seconds"):
        client.runs.wait(long, timeout=0)
    client.runs.cancel(long)
    with pytest.raises(RunFailed, match="cancelled") as caught:
        client.runs.wait(long)
    assert caught.value.run_id == long.id
    assert client.runs.wait(long, check=False).state == "cancelled"
    client.datasets.delete(dataset)
    with pytest.raises(NotFound):
        client.datasets.get(dataset)


def sweeps_and_audits(client: Client) -> None:
    dataset = client.datasets.generate(name="generated", features=2, rows=200, seed=1)
    grid: dict[str, Any] = TRAINING | {
        "dataset_id": dataset.id,
        "test_dataset_id": dataset.id,
        "iterations": [5, 10],
        "hyperparameters": {"step_size": [0.1, 0.2]},
    }
    assert client.run_sweeps.quote(select="all", **grid)
    sweep = client.run_sweeps.create(select="all", **grid)
    assert sweep.id in [found.id for found in client.run_sweeps.list()]
    for cell in client.run_sweeps.get(sweep).cells:
        client.runs.wait(cell.run_id)
    assert "<svg" in client.run_sweeps.heat_map(sweep)
    another = client.run_sweeps.create(select="all", **grid | {"iterations": [50_000, 60_000]})
    assert client.run_sweeps.cancel(another).id == another.id
    run = client.run_sweeps.get(sweep).cells[0].run_id
    audit = client.audits.create(run_id=run, trials=10, seed=1)
    assert client.audits.get(audit).id == audit.id
    assert [found.id for found in client.audits.list(run=run)] == [audit.id]


def following_where_no_stream_is_to_be_had(client: Client, url: str) -> None:
    """Too many listen, or a proxy cuts streams off: the run is asked for now and then."""
    for trouble in (Answer(429, "too_many_listeners", 30), Answer(502)):
        with proxy_before(url) as proxy, Client(proxy.url) as other:
            proxy.rules = {"/events": trouble}
            run: Run = other.runs.create(dataset_id="ds_digits", **TRAINING | {"model": {"kind": "softmax_regression"}})
            heard: list[ProgressMessage] = []
            assert other.runs.wait(run, on_progress=heard.append).state == "succeeded"
            assert heard[-1].state == "succeeded"
            assert any(path.endswith("/events") for _, path, _ in proxy.seen)


def keys(client: Client, url: str) -> None:
    admin = client.keys.create("tour", ["admin"])
    assert admin.token
    assert admin.token not in repr(admin) + str(admin)
    with pytest.raises(Unauthenticated):
        client.keys.own()
    with Client(url, admin.token) as owner:
        assert owner.keys.own().scopes
        (waiting,) = owner.limit_requests.list(state="open")
        assert owner.limit_requests.approve(waiting, reason="yes").state == "approved"
        analyst = owner.keys.create("tour", ["analyst"], expires_in=3600)
        assert analyst.token
        assert {key.id for key in owner.keys.list(page_size=1)} == {admin.id, analyst.id}
        assert owner.keys.get(analyst).token is None
        with Client(url, analyst.token) as other, pytest.raises(Forbidden):
            other.keys.create("more", ["admin"])
        assert owner.keys.rotate(analyst, overlap_s=0).token != analyst.token
        assert owner.keys.revoke(analyst).state == "revoked"


def test_links_of_the_readme_resolve() -> None:
    links = LINK.findall(README.read_text())
    assert len(links) >= 2
    for link in links:
        assert (README.parent / link.partition("#")[0]).exists(), link


def test_the_readme_fits_a_screen() -> None:
    text = README.read_text()
    assert len(text.splitlines()) <= 80
