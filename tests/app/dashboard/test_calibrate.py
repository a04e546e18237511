"""The first page: an answer at once, for every algorithm, as the service gives it, and faults at their fields."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from epsilond_verifier import check
from starlette.testclient import TestClient

from accounting.canonical import sha256_hex
from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.context import Context
from app.dashboard.calibrate import _tiles
from app.dashboard.calibration_fields import CONSTANT, START, TARGETS
from app.dashboard.calibration_form import Form, example_address, example_of, read, values_of
from app.kit.process_pool import ProcessPool
from app.main import create_app
from calibrators.registry import ALGORITHMS
from tests.app.conftest import ConnectAs
from tests.app.dashboard.documents import Document
from tests.databases import on_one_engine
from tests.local_access import local_client

QUICK = {
    **START,
    "sampling": "full_batch",
    "dataset_size": "1000",
    "iterations": "100",
    "epsilon": "1",
    "delta": "1e-6",
    "max_grad_norm": "1",
}
LIVE = {"HX-Request": "true"}
CHARTS = ("steps", "targets", "trade-off")


@pytest.fixture(scope="module")
def algorithms(reader: TestClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = reader.get("/v1/algorithms").json()["items"]
    return items


def show(reader: TestClient, values: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Document:
    response = reader.get("/", params=dict(values), headers=dict(headers or {}))
    assert response.status_code == 200
    document = Document(response.text, is_part=headers is not None)
    assert document.faults == []
    return document


def faults(document: Document) -> dict[str, str]:
    """What is said at each field."""
    said = {each.attributes["id"]: " ".join(each.text.split()) for each in document.all("p", class_="fault")}
    return {identifier.removeprefix("field-").removesuffix("-fault"): text for identifier, text in said.items() if text}


def test_the_first_screen_has_the_answer_to_the_common_case(reader: TestClient) -> None:
    document = show(reader, {})
    said = reader.post("/v1/calibrate", json=example_of("dp_sgd")).json()
    summary = document.text_of("summary")
    found = re.fullmatch(
        r"Noise multiplier ([\d.]+) for 5000 steps: epsilon at most ([\d.]+) at delta 1e-5, "
        r"one record added or removed\.",
        summary,
    )
    assert found, summary
    noise, epsilon = float(found[1]), float(found[2])
    assert said["solution"]["noise_multiplier"] <= noise <= said["solution"]["noise_multiplier"] * 1.00001
    assert said["achieved"]["epsilon"]["upper"] <= epsilon <= 8
    assert found[1] in document.text_of("answer")
    assert faults(document) == {}


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.one_in(12)
def test_every_algorithm_that_is_chosen_has_an_answer_and_charts(reader: TestClient, name: str) -> None:
    document = show(reader, {**QUICK, "algorithm": name, "shown": "dp_sgd"})
    said = faults(document)
    if document.text_of("summary").startswith("No answer"):
        assert said, "it says at which fields it needs what"
        document = show(reader, values_of(example_of(name)))
        assert not document.text_of("summary").startswith("No answer")
    [link] = [each for each in document.all("a") if each.attributes["href"].startswith("/dashboard/calibrate/steps?")]
    address = link.attributes["href"].partition("?")[2]
    for chart in CHARTS:
        drawn = reader.get(f"/dashboard/calibrate/{chart}?{address}", headers=LIVE)
        part = Document(drawn.text, is_part=True)
        assert part.faults == []
        assert part.all("svg") or (chart == "steps" and "charged as one event" in drawn.text), drawn.text[:300]


@pytest.mark.parametrize("example", CALIBRATE_EXAMPLES)
def test_the_form_makes_the_request_that_fills_it_in(algorithms: list[dict[str, Any]], example: str) -> None:
    body = dict(CALIBRATE_EXAMPLES[example]["value"])
    form = read(values_of(body), algorithms)
    again = dict(parse_qsl(form.address))
    assert read(again, algorithms).body() == form.body(), "the address holds all of it"
    # The form has no domain, penalty or step size, and says which relation and sampling it takes.
    for name in ("penalty", "domain", "hyperparameters"):
        body.pop(name, None)
    if isinstance(body.get("sampling"), Mapping):
        body["sampling"] = body["sampling"]["kind"]
    made = {name: value for name, value in form.body().items() if name in body}
    assert made == {name: value for name, value in body.items() if name != "solve_for" or value != "noise_multiplier"}


def test_a_guarantee_for_all_records_of_one_owner(reader: TestClient) -> None:
    page = show(reader, {**QUICK, "group_size": "4"})
    assert "group size 4" in page.text_of("summary")
    assert faults(show(reader, {**QUICK, "group_size": "0"})).keys() == {"group_size"}


def test_several_faults_are_told_without_words_of_the_interface(reader: TestClient) -> None:
    document = show(reader, {**QUICK, "epsilon": "much", "delta": "1"})
    assert set(faults(document)) == {"epsilon", "delta"}
    assert document.text_of("summary") == "No answer: The fields that are marked need another value."
    one = show(reader, {**QUICK, "epsilon": "much"})
    assert one.text_of("summary") == "No answer: Epsilon: Input should be a valid number, not a text."


@pytest.mark.parametrize(
    ("changed", "field", "words"),
    [
        ({"epsilon": "-1"}, "epsilon", "greater than 0"),
        ({"epsilon": "much"}, "epsilon", "valid number, not a text"),
        ({"epsilon": ""}, "epsilon", "needs epsilon"),
        ({"epsilon": "1e999"}, "epsilon", "valid number"),
        ({"delta": "0.7"}, "delta", "0.5"),
        ({"dataset_size": "12.5"}, "dataset_size", "integer"),
        ({"dataset_size": ""}, "dataset_size", "required"),
        ({"iterations": "0"}, "iterations", "1"),
        ({"max_grad_norm": "0"}, "max_grad_norm", "greater than 0"),
        ({"assumptions.deviation_tau1": "2"}, "assumptions-deviation_tau1", "1"),
        ({"solve_for": "batch_size", "noise_multiplier": "1"}, "solve_for", "poisson"),
        ({"target": "pure_dp"}, "target", "pure"),
        ({"sampling": "truncated_poisson", "max_batch_size": "0"}, "max_batch_size", "greater than or equal to 1"),
        ({"sampling": "truncated_poisson", "capacity": "999"}, "capacity", "1000"),
        ({"sampling": "disjoint_batches", "iterations": "1001"}, "iterations", "disjoint batches"),
        ({"target": "true_positive_rate", "fpr": "0.5", "tpr": "0.1"}, "tpr", "0.5"),
    ],
)
def test_a_fault_stands_at_its_field(reader: TestClient, changed: dict[str, str], field: str, words: str) -> None:
    document = show(reader, {**QUICK, **changed})
    assert document.text_of("summary").startswith("No answer: ")
    said = faults(document)
    assert set(said) == {field}
    assert words in said[field]
    [control] = [each for each in document.elements if each.attributes.get("id") == f"field-{field}"]
    assert control.attributes["aria-invalid"] == "true"
    assert f"field-{field}-fault" in control.attributes["aria-describedby"].split()


@pytest.mark.parametrize("solve_for", ["noise_multiplier", "iterations", "batch_size", "epsilon", "delta"])
def test_what_is_solved_for_is_no_field(algorithms: list[dict[str, Any]], solve_for: str) -> None:
    form = read({**START, "solve_for": solve_for, "batch_size": "100"}, algorithms)
    names = {each.name for each in form.fields}
    assert solve_for not in names
    assert ("noise_multiplier" in names) is (solve_for != "noise_multiplier")


def test_fields_are_those_of_the_algorithm_and_the_target(algorithms: list[dict[str, Any]]) -> None:
    for target, fields in TARGETS.items():
        names = {each.name for each in read({**START, "target": target}, algorithms).fields}
        others = {name for names in TARGETS.values() for name in names} - set(fields)
        assert set(fields) <= names
        assert not others & names
    names = {each.name for each in read({**START, "sampling": "full_batch"}, algorithms).fields}
    assert "batch_size" not in names
    for algorithm in algorithms:
        form = read({**START, "algorithm": algorithm["name"]}, algorithms)
        names = {each.name for each in form.fields}
        assert {f"{CONSTANT}{each['name']}" for each in algorithm["assumptions"]} <= names
        assert ("variant" in names) is bool(algorithm["variants"])
        assert ("gradient_bound" in names) is bool(algorithm["gradient_bounds"])


@pytest.mark.parametrize(
    ("sampling", "sizes"),
    [
        ("poisson", {"batch_size"}),
        ("truncated_poisson", {"batch_size", "max_batch_size", "capacity"}),
        ("random_allocation", {"batch_size"}),
        ("blocks", {"batch_size"}),
        ("shuffled_epochs", {"batch_size"}),
        ("disjoint_batches", set()),
    ],
)
def test_each_sampling_asks_for_its_sizes(algorithms: list[dict[str, Any]], sampling: str, sizes: set[str]) -> None:
    form = read({**START, "sampling": sampling}, algorithms)
    assert {each.name for each in form.fields} & {"batch_size", "max_batch_size", "capacity"} == sizes
    expected = {"kind": sampling, "max_batch_size": 1200} if "max_batch_size" in sizes else sampling
    assert form.body()["sampling"] == expected
    assert values_of(form.body())["sampling"] == sampling


def test_a_capacity_is_asked_for_where_the_number_of_records_is_private(algorithms: list[dict[str, Any]]) -> None:
    given = {**START, "sampling": "truncated_poisson", "capacity": "60000"}
    form = read(given, algorithms)
    assert form.body()["capacity"] == 60000
    assert values_of(form.body())["capacity"] == "60000"
    public = read({**given, "neighboring_relation": "replace_special"}, algorithms)
    assert "capacity" not in public.body()
    assert "capacity" not in {each.name for each in public.fields}


def test_one_pass_over_disjoint_batches_is_answered(reader: TestClient) -> None:
    document = show(reader, {**QUICK, "sampling": "disjoint_batches", "iterations": "10"})
    assert not faults(document)
    assert document.text_of("summary").startswith("Noise multiplier")


def test_the_numeric_type_of_a_run_is_a_choice_and_the_answer_says_why_it_is_float64(reader: TestClient) -> None:
    form = reader.get("/", params={**QUICK}, headers=LIVE).text
    assert "float32" in form.partition("numeric type of a run")[2][:60]
    wide = reader.get("/", params={**QUICK, "dtype": "float64"}, headers=LIVE).text
    assert "float64" in wide.partition("numeric type of a run")[2][:60]
    assert "&#34;dtype&#34;: &#34;float64&#34;" in wide, "the same request in a shell has it"
    mean = reader.get("/", params=dict(parse_qsl(example_address("clipped_mean")[2:])), headers=LIVE).text
    assert "reads every record once" in mean


def test_choosing_an_algorithm_fills_in_what_it_needs_and_keeps_what_it_can(algorithms: list[dict[str, Any]]) -> None:
    chosen = read({**START, "shown": "dp_sgd", "algorithm": "dp_fw", "epsilon": "3"}, algorithms)
    assert chosen.is_example
    assert chosen.values["dataset_size"] == "50000"
    assert chosen.values["epsilon"] == "3"
    assert chosen.values[f"{CONSTANT}lipschitz"] == "2"
    assert chosen.values["iterations"] == "", "its theorem chooses"
    assert not read({**chosen.values, "shown": "dp_fw"}, algorithms).is_example
    own = read({**START, "shown": "dp_gd", "algorithm": "dp_fw", f"{CONSTANT}lipschitz": "7"}, algorithms)
    assert own.values[f"{CONSTANT}lipschitz"] == "7"
    assert read({"algorithm": "nothing"}, algorithms).algorithm["name"] == START["algorithm"]


def test_only_what_changes_is_sent_while_one_types(reader: TestClient) -> None:
    typed = reader.get("/", params={**QUICK, "epsilon": "-1"}, headers={**LIVE, "HX-Target": "answer"})
    part = Document(typed.text, is_part=True)
    assert [fault for fault in part.faults if "which is not there" not in fault] == []
    assert not part.all("form")
    assert not part.all("html")
    assert part.all("div", id="answer")
    assert "greater than 0" in faults(part)["epsilon"]
    assert typed.headers["hx-trigger-after-settle"] == "calibrated"
    assert dict(parse_qsl(typed.headers["hx-replace-url"].removeprefix("/?")))["epsilon"] == "-1"
    fixed = Document(reader.get("/", params=QUICK, headers={**LIVE, "HX-Target": "answer"}).text, is_part=True)
    gone = [each for each in fixed.all("p", class_="fault") if each.attributes["id"] == "field-epsilon-fault"]
    assert [(each.text.strip(), each.attributes["hx-swap-oob"]) for each in gone] == [("", "true")]
    chosen = Document(reader.get("/", params=QUICK, headers={**LIVE, "HX-Target": "calibration"}).text, is_part=True)
    assert chosen.all("form", id="calibration")
    assert chosen.all("div", id="answer", hx_swap_oob="true")
    back = reader.get("/", params=QUICK, headers={**LIVE, "HX-History-Restore-Request": "true"})
    assert back.text.startswith("<!DOCTYPE html>")


def test_the_same_request_in_a_shell_and_in_python_is_the_same(reader: TestClient) -> None:
    page = show(reader, {**QUICK, "assumptions.initial_gap": "2"})
    shell, python = (each.text for each in page.all("pre"))
    command = shlex.split(shell.replace("\\\n", " "))
    assert command[:3] == ["curl", "-s", "http://127.0.0.1:8000/v1/calibrate"]
    asked = json.loads(command[command.index("--json") + 1])
    answer = reader.post("/v1/calibrate", json=asked)
    assert answer.json()["plan_hash"] in page.text_of("details")
    [call] = [node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Call) and node.keywords]
    assert {each.arg: ast.literal_eval(each.value) for each in call.keywords} == asked
    assert ast.unparse(call.func) == "client.calibrate"


def test_a_value_with_a_quote_stays_one_word_of_the_command(reader: TestClient) -> None:
    page = show(reader, {**QUICK, "epsilon": "1'; rm -rf / #"})
    command = shlex.split(page.all("pre")[0].text.replace("\\\n", " "))
    assert json.loads(command[-1])["target"]["epsilon"] == "1'; rm -rf / #"


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ({"target": "zcdp", "rho": "0.5"}, "rho at most 0.5"),
        ({"target": "gaussian_dp", "mu": "1"}, "mu at most 1,"),
        ({"target": "advantage", "advantage": "0.2"}, "advantage at most "),
        ({"target": "true_positive_rate", "tpr": "0.05", "fpr": "0.01"}, "tpr at most 0.05 at fpr 0.01"),
        ({"target": "bayes_risk", "bayes_risk": "0.4", "prior": "0.5"}, "bayes risk at least 0.4 at prior 0.5"),
        (
            {"solve_for": "epsilon", "target": "approximate_dp", "noise_multiplier": "40"},
            "Epsilon at most 1.0",
        ),
        ({"solve_for": "delta", "target": "approximate_dp", "noise_multiplier": "40"}, "Delta at most "),
        ({"solve_for": "iterations", "noise_multiplier": "40"}, "Iterations "),
    ],
)
def test_every_target_is_answered_in_its_own_words(reader: TestClient, target: dict[str, str], words: str) -> None:
    document = show(reader, {**QUICK, **target})
    assert words in document.text_of("summary")
    chart = reader.get("/dashboard/calibrate/targets", params={**QUICK, **target}, headers=LIVE)
    assert "<svg" in chart.text


def test_a_chart_has_a_page_of_its_own(reader: TestClient) -> None:
    page = reader.get("/dashboard/calibrate/steps", params=QUICK)
    document = Document(page.text)
    assert document.faults == []
    assert document.all("svg")
    back = next(each.attributes["href"] for each in document.all("a") if each.attributes["href"].startswith("/?"))
    assert dict(parse_qsl(back[2:])) == {name: value for name, value in QUICK.items() if name != "batch_size"}
    refused = reader.get("/dashboard/calibrate/steps", params={**QUICK, "epsilon": "-1"}, headers=LIVE)
    assert "No chart" in refused.text
    assert "No chart" in reader.get("/dashboard/calibrate/nothing", params=QUICK, headers=LIVE).text


def test_epsilon_over_steps_ends_at_the_plans_own_cost(reader: TestClient) -> None:
    drawn = reader.get("/dashboard/calibrate/steps", params=QUICK, headers=LIVE)
    cells = [each.text for each in Document(drawn.text, is_part=True).all("td", class_="number")]
    epsilons = [float(each) for each in cells]
    assert epsilons[0] == 0.0
    assert epsilons == sorted(epsilons)
    achieved = re.search(r"epsilon at most ([\d.]+)", show(reader, QUICK).text_of("summary"))
    assert achieved
    assert epsilons[-1] == float(achieved[1])


def test_numbers_are_rounded_to_the_side_that_promises_less(
    algorithms: list[dict[str, Any]], reader: TestClient
) -> None:
    form: Form = read(QUICK, algorithms)
    body = reader.post("/v1/calibrate", json=form.body()).json()
    body["solution"]["noise_multiplier"] = 1.0000001
    body["achieved"]["epsilon"] = {"lower": 0.9999999, "estimate": 1.0, "upper": 1.0000001}
    noise, epsilon, *_ = _tiles(body)
    assert (noise.value, epsilon.value) == ("1.00001", "≤ 1.00001")
    assert "within [0.999999, 1.00001]" in epsilon.note


@on_one_engine
def test_what_a_plan_would_cost_in_a_budget_is_shown_beside_it(connect: ConnectAs) -> None:
    client = connect()
    budget = {
        "name": "<Visits>",
        "neighboring_relation": "add_or_remove_one",
        "filter": {"kind": "zcdp", "rho": 0.5},
    }
    made = client.post("/v1/budgets", json=budget, headers={"Idempotency-Key": "k"}).json()
    values = {**QUICK, "target": "zcdp", "rho": "0.4"}
    assert "budget" not in show(client, values).text_of("answer")
    fits = show(client, {**values, "budget_id": made["id"]}).text_of("answer")
    assert "It fits the budget <Visits>. It would be charged rho 0.4; there is rho 0.5 left." in fits
    too_much = show(client, {**values, "budget_id": made["id"], "rho": "0.6"})
    assert "It does not fit the budget <Visits>." in too_much.text_of("answer")
    assert made["id"] in too_much.text_of("details")
    other = show(client, {**values, "budget_id": made["id"], "neighboring_relation": "replace_one"})
    assert set(faults(other)) == {"neighboring_relation"}
    unknown = show(client, {**values, "budget_id": "bud_nothing"})
    assert faults(unknown) == {}
    for chart in CHARTS:
        drawn = client.get(f"/dashboard/calibrate/{chart}", params={**values, "budget_id": made["id"]}, headers=LIVE)
        assert "<svg" in drawn.text


def test_what_a_page_says_of_a_fault_is_what_the_interface_says(
    reader: TestClient, algorithms: list[dict[str, Any]]
) -> None:
    values = {**QUICK, "delta": "0"}
    refusal = reader.post("/v1/calibrate", json=read(values, algorithms).body())
    assert faults(show(reader, values)) == {"delta": refusal.json()["errors"][0]["detail"]}


def test_the_papers_own_calibration_is_judged_where_one_asks(reader: TestClient) -> None:
    page = show(reader, dict(parse_qsl(example_address("dp_gd").removeprefix("/?"))))
    assert page.all("p", class_="verdict") == []
    link = next(each for each in page.all("a") if "paper's own" in each.text)
    judged = show(reader, dict(parse_qsl(link.attributes["href"].removeprefix("/?"))))
    [said] = judged.all("p", class_="verdict unsound") + judged.all("p", class_="verdict loose")
    assert "The paper's own calibration is" in said.text


def test_a_number_is_proved_where_one_asks(reader: TestClient) -> None:
    page = show(reader, dict(parse_qsl(example_address("dp_gd").removeprefix("/?"))))
    link = next(each for each in page.all("a") if "others can check it" in each.text)
    proved = show(reader, dict(parse_qsl(link.attributes["href"].removeprefix("/?"))))
    [download] = [each for each in proved.all("a") if each.text == "Download the certificate"]
    certificate = unquote(download.attributes["href"].removeprefix("data:application/json,")).encode()
    assert check(certificate).verdict == "verified"
    [said] = proved.all("p", class_="verdict sound")
    assert sha256_hex(certificate)[:12] in said.text
    of_groups = show(reader, dict(parse_qsl(link.attributes["href"].removeprefix("/?"))) | {"group_size": "2"})
    assert of_groups.all("p", class_="verdict sound")


def test_the_error_over_bands_is_drawn_with_its_numbers(reader: TestClient) -> None:
    shown = show(reader, dict(parse_qsl(example_address("dp_bandmf").removeprefix("/?"))))
    titles = [each.text.strip() for each in shown.all("figcaption")]
    assert titles == ["Error over bands"]
    [table] = [each for each in shown.all("table") if "noise multiplier" in each.text and "memory" in each.text]
    assert "chosen82.708" in "".join(table.text.split())
    assert "0.86262" in table.text
    assert [each.text for each in show(reader, {}).all("figcaption")] == []


def test_bands_have_their_faults_at_their_field(reader: TestClient) -> None:
    values = dict(parse_qsl(example_address("dp_bandmf").removeprefix("/?")))
    assert "at most 50 bands" in faults(show(reader, values | {"bands": "60", "dataset_size": "25000"}))["bands"]
    assert "bands" in faults(show(reader, values | {"bands": "some"}))
    assert "momentum" in faults(show(reader, values | {"momentum": "1.5"}))
    falling = values | {"step_size_schedule": "linear", "cooldown": "2"}
    assert "cooldown" in faults(show(reader, falling))
    assert "cooldown" not in {each.name for each in read(values, algorithms_of(reader)).fields}
    form = read(values | {"step_size_schedule": "cosine", "cooldown": "0.25"}, algorithms_of(reader))
    assert form.body()["hyperparameters"]["step_size_schedule"] == {"kind": "cosine", "cooldown": 0.25}
    assert read(dict(parse_qsl(form.address)), algorithms_of(reader)).body() == form.body()
    assert "momentum" not in {each.name for each in read({"algorithm": "dp_sgd"}, algorithms_of(reader)).fields}


def algorithms_of(reader: TestClient) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = reader.get("/v1/algorithms").json()["items"]
    return items


@on_one_engine
def test_what_was_given_up_is_no_fault_of_a_field_and_can_be_tried_again(context: Context) -> None:
    hasty = replace(context, processes=ProcessPool(size=1, seconds=0.001, memory_bytes=2**30))
    try:
        with local_client(create_app(hasty)) as client:
            shown = client.get("/").text
            events = client.get("/dashboard/calibrate/events").text
    finally:
        hasty.processes.close()
    for page, form in ((shown, "calibration"), (events, "list")):
        assert "was given up: it took longer than" in page
        assert 'aria-invalid="true"' not in page
        assert "until this field has another value" not in page
        assert f'<button type="submit" form="{form}">Try again</button>' in page
        assert Document(page).faults == []
    assert "is being computed" not in shown
    assert "no chart, because there is no answer" in shown
    assert 'hx-trigger="load' not in shown
