"""The privacy card: one object and three renderings of it, each with every fact, none with anybody's markup."""

from __future__ import annotations

import hashlib
import json
import math
import re
from base64 import b64encode
from collections.abc import Iterator
from html.parser import HTMLParser
from statistics import NormalDist
from typing import Any

import pytest
from epsilond_verifier import check
from markdown_it import MarkdownIt
from sqlalchemy import text

from accounting.canonical import sha256_hex
from app.algorithms.targets import (
    AchievedAdvantageBody,
    AchievedBayesRiskBody,
    AchievedMuBody,
    AchievedPureBody,
    AchievedTprBody,
)
from app.kit.negotiation import preferred
from app.ledger.checkpoints import VerifierKey
from app.ledger.proofs import check_proof
from app.runs import report as reports
from app.runs.card_parts import LISTED_NUMBERS
from app.runs.card_summary import most_right
from app.runs.executors import local
from app.runs.guarantee import bounds_of
from app.runs.report_schemas import PrivacyReport
from app.tables.runs import Audit
from app.wire.answers import IntervalBody
from tests.app.problem_assertions import assert_problem
from tests.app.runs.conftest import COLUMNS, ROWS
from tests.databases import on_one_engine

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "a|b [click](javascript:alert(1)) ![i](http://evil.example/i.png)",
    "`x` **bold** _it_ ~~no~~ &lt;b&gt; \\| www.evil.example me@evil.example",
    "{{ 7*7 }} {% raw %} ${7*7} $x$",
    "# heading",
)


class Page(HTMLParser):
    """A page as a browser reads it: its elements with their attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def count(self, tag: str) -> int:
        return sum(each == tag for each, _ in self.elements)

    @property
    def text(self) -> str:
        return _flat(" ".join(self.texts))


def read_markdown(text: str) -> tuple[str, set[str]]:
    """Its text as a reader of GitHub's Markdown sees it, and the kinds of what is in it."""
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text)
    inline = [child for token in tokens for child in token.children or ()]
    shown = " ".join(
        "".join(child.content for child in token.children or ()) for token in tokens if token.type == "inline"
    )
    return _flat(shown), {token.type for token in (*tokens, *inline)}


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def leaves(value: Any) -> Iterator[str]:
    """Every value of a card as it is shown; of long lists of numbers the ends."""
    match value:
        case dict():
            for item in value.values():
                yield from leaves(item)
        case list():
            long = len(value) > LISTED_NUMBERS and not any(isinstance(item, str | dict | list) for item in value)
            for item in (value[0], value[-1]) if long else value:
                yield from leaves(item)
        case bool() | None:
            pass
        case str():
            yield _flat(value).strip()
        case _:
            yield repr(value)


def rendered(service, run: dict[str, Any]) -> tuple[dict[str, Any], str, Page]:
    """The card as JSON, Markdown and page."""
    path = f"/v1/runs/{run['id']}/report"
    card = service.get(path)
    markdown = service.client.get(path, headers={"accept": "text/markdown"})
    page = service.client.get(f"{path}?format=html")
    assert markdown.headers["content-type"] == "text/markdown; charset=utf-8"
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    return card, markdown.text, Page(page.text)


def check_every_fact_is_shown(card: dict[str, Any], markdown: str, page: Page) -> None:
    text, _ = read_markdown(markdown)
    for leaf in leaves(card):
        assert leaf in page.text, leaf
        assert leaf in text, leaf


def audited(service, run: dict[str, Any]) -> None:
    """Store the row of an audit without the attack itself, which takes seconds."""
    finding = {
        "design": "orthogonal",
        "method": "guesses",
        "trials": 2000,
        "finding": {"delta": 1e-5, "epsilon_lower": 0.0625, "confidence": 0.951, "claim": {"upper": 0.984375}},
        "verdict": "consistent",
    }
    stored = service.stored(run)
    row = Audit(
        id="aud_a",
        principal_id="loopback",
        algorithm=run["algorithm"],
        run_id=run["id"],
        plan=stored.plan,
        plan_hash=stored.plan_hash,
        request={},
        claim={},
        finding=finding,
        created_at=service.context.clock(),
    )
    with service.context.database.write() as session:
        session.add(row)


@on_one_engine
def test_a_card_has_its_entries_of_the_ledger_and_every_rendering_every_fact(service):
    budget, run = service.private()
    service.work()
    audited(service, run)
    card, markdown, page = rendered(service, run)
    assert [entry["kind"] for entry in card["ledger"]["entries"]] == ["reserve", "start", "commit"]
    entries = {entry["id"]: entry for entry in service.get(f"/v1/budgets/{budget['id']}/entries")["items"]}
    for entry in card["ledger"]["entries"]:
        assert {name: entries[entry["id"]][name] for name in entry} == entry
    assert card["ledger"]["reservation_state"] == "committed"
    assert card["statement"].startswith("The released model is (")
    assert card["plan"] == service.get(f"/v1/runs/{run['id']}")["plan"]
    assert len(card["audits"]) == 1
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_card_proves_that_its_charge_is_in_the_tree_of_all_entries(service):
    _, run = service.charged()
    service.work()
    card, markdown, _ = rendered(service, run)
    proof, last = card["ledger"]["proof"], card["ledger"]["entries"][-1]
    assert (proof["entry_id"], proof["entry_hash"]) == (last["id"], last["hash"])
    key = VerifierKey.parse(service.get("/v1/ledger/checkpoint")["public_key"])
    assert check_proof(json.dumps(proof), key).startswith(f"the entry with the hash {last['hash']} is in the tree")
    assert proof["root_hash"] in markdown


@on_one_engine
def test_what_is_guaranteed_is_told_before_how_it_was_found(service):
    _, run = service.charged()
    service.work()
    _, markdown, _ = rendered(service, run)
    assert markdown.index("achieved epsilon") < markdown.index("achieved method") < markdown.index("unit of privacy")
    assert markdown.index("achieved epsilon") < markdown.index("achieved error")


@on_one_engine
def test_the_fields_of_the_card_are_the_ones_of_its_version(service):
    _, run = service.private()
    card = service.report(run)
    assert card["card_version"] == 1
    schema = PrivacyReport.model_json_schema(mode="serialization")
    fields = {
        name: sorted(definition["properties"])
        for name, definition in {**schema["$defs"], "PrivacyReport": schema}.items()
        if name in CARD_PARTS
    }
    assert set(fields) == set(CARD_PARTS)
    assert fields == CARD_PARTS
    assert list(card) == list(PrivacyReport.model_fields)


CARD_PARTS = {
    "AuditSummary": sorted(
        [
            "id",
            "design",
            "method",
            "trials",
            "delta",
            "epsilon_lower",
            "claimed",
            "confidence",
            "verdict",
            "created_at",
        ]
    ),
    "DataSummary": sorted(["dataset_id", "name", "version", "public", "declared_size", "held_out_size", "capacity"]),
    "BudgetSummary": sorted(["id", "name", "neighboring_relation", "privacy_unit", "limit"]),
    "EntrySummary": sorted(["id", "kind", "sequence", "leaf_index", "recorded_at", "previous_hash", "hash"]),
    "CertificateSummary": sorted(["epsilon", "delta", "sha256", "path"]),
    "LedgerSummary": sorted(["reservation_state", "purpose", "certificate", "entries", "proof"]),
    "SweepSummary": sorted(
        ["id", "select", "fields", "cells", "sweep_hash", "guarantee", "trials", "score", "theorem"]
    ),
    "EvaluationPoint": sorted(["layer", "section", "point", "finding"]),
    "RegistryField": sorted(["field", "value"]),
    "DeploymentBody": sorted(["inherited", "answers", "principal_id", "principal_name", "stated_at"]),
    "PrivacyReport": sorted(
        [
            "card_version",
            "device",
            "run_id",
            "state",
            "statement",
            "sweep",
            "problem",
            "created_at",
            "finished_at",
            "seeded",
            "target",
            "achieved",
            "convention",
            "privacy_unit",
            "neighbors",
            "data",
            "model",
            "algorithm",
            "source",
            "events",
            "noise",
            "theorem_note",
            "hyperparameters",
            "utility",
            "assumptions",
            "literal",
            "plan",
            "plan_hash",
            "held_out",
            "dtype",
            "dtype_reason",
            "budget_id",
            "reservation_id",
            "charge",
            "budget",
            "deployment",
            "ledger",
            "versions",
            "scores",
            "choices",
            "audits",
            "caveats",
            "evaluation",
            "registry",
        ]
    ),
}


@on_one_engine
def test_nist_points_and_fields_of_the_registry_are_known_or_stay_open(service):
    _, run = service.private()
    service.work()
    card, markdown, page = rendered(service, run)
    points = {item["point"]: item["finding"] for item in card["evaluation"]}
    for known in (
        "Privacy parameters",
        "Unit of privacy",
        "Trust model",
        "Side channels",
        "Randomness and floating point",
    ):
        assert points[known], known
    for open_point in ("Data collection exposure", "Systemic bias", "Other releases of the same data, elsewhere"):
        assert points[open_point] is None, open_point
    assert {item["layer"] for item in card["evaluation"]} == {"guarantee", "algorithm", "deployment"}
    fields = {item["field"]: item["value"] for item in card["registry"]}
    assert fields["privacy_loss.privacy_parameters.epsilon"] == card["achieved"]["epsilon"]["upper"]
    assert fields["privacy_loss.privacy_parameters.delta"] == 1e-5
    assert fields["dp_variant.variant_name"] == "Approximate DP"
    assert fields["basic.data_curators"] is None
    assert fields["basic.intended_use"] is None
    for shown in (page.text, read_markdown(markdown)[0]):
        assert shown.count("The operator of the service has not said:") == 2, (
            "once for each list, and not at each point"
        )
        for name in [name for name, value in (points | fields).items() if value is None]:
            assert name in shown


@on_one_engine
def test_the_first_page_says_the_guarantee_in_words_and_what_it_does_not_cover(service):
    _, run = service.private()
    service.work()
    card, markdown, page = rendered(service, run)
    first = read_markdown(markdown)[0].partition("Appendix")[0]
    epsilon, delta = card["achieved"]["epsilon"]["upper"], card["achieved"]["delta"]
    share = (math.exp(epsilon) + delta) / (1 + math.exp(epsilon))
    (said,) = re.findall(r"in at most ([0-9.]+) % of cases", first)
    assert 0 <= float(said) - 100 * share < 0.11
    (most,) = re.findall(r"epsilon at most ([0-9.]+)", first)
    assert epsilon <= float(most) < epsilon + 1e-5, "rounded up, as in the statement above it"
    assert f"({most}, " in card["statement"]
    assert "What it does not cover" in first
    assert "The operators of the service" in first
    assert len(first.split()) < 400, "a page that a manager reads"
    (said_on_page,) = re.findall(r"in at most ([0-9.]+) % of cases", page.text.partition("Appendix")[0])
    assert said_on_page == said


def test_no_attack_is_right_more_often_than_the_card_says() -> None:
    """The best test of randomised response attains the bound of pure DP, and that of a Gaussian the bound of mu."""
    how: dict[str, Any] = {"method": "closed_form", "error_budget": {}}
    for epsilon in (0.1, 1.0, 3.0, 40.0, 900.0):
        attained = math.exp(min(epsilon, 700)) / (1 + math.exp(min(epsilon, 700)))
        assert attained <= most_right(AchievedPureBody(epsilon=epsilon, **how)) <= attained + 1e-11
    for mu in (0.1, 1.0, 5.0):
        attained = NormalDist().cdf(mu / 2)
        assert attained <= most_right(AchievedMuBody(mu=mu, **how)) <= attained + 1e-11


@pytest.mark.thorough
@on_one_engine
def test_names_are_text_in_every_rendering_whatever_they_hold(service):
    budget = service.budget(name=HOSTILE[0], privacy_unit=HOSTILE[3])
    for name in (" ".join(HOSTILE[:3]), " ".join(HOSTILE[3:])):
        dataset = service.dataset(name=name, privacy_unit=HOSTILE[3], budget_id=budget["id"])
        run = service.queued(dataset_id=dataset["id"], budget_id=budget["id"], target={"kind": "zcdp", "rho": 1e-4})
        card, markdown, page = rendered(service, run)
        assert card["data"]["name"] == name
        check_every_fact_is_shown(card, markdown, page)
        _, kinds = read_markdown(markdown)
        assert not kinds & {"html_inline", "html_block", "link_open", "image", "strong_open", "em_open", "s_open"}
        assert "heading_open" in kinds
        assert len(re.findall(r"^# ", markdown, re.MULTILINE)) == 1
        assert not re.search(r"(?<!\\)://|(?<!\\)@|www\.|(?<!\\)\$", markdown)
        assert not {tag for tag, _ in page.elements} & {"script", "img", "a", "b", "iframe"}
        assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]


@on_one_engine
def test_the_page_needs_nothing_but_itself_and_may_do_nothing_else(service):
    _, run = service.private()
    answer = service.client.get(f"/v1/runs/{run['id']}/report", headers={"accept": "text/html,*/*;q=0.8"})
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    [style] = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    digest = b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert policy == {
        "default-src": "'none'",
        "style-src": f"'sha256-{digest}'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    assert not re.search(r"\s(?:src|href|style)=|url\(|@import|https?:", answer.text)
    assert "prefers-color-scheme: dark" in style
    assert "@media print" in style
    assert answer.headers["vary"] == "Accept"
    page = Page(answer.text)
    assert ("html", {"lang": "en"}) in page.elements
    assert (page.count("h1"), page.count("main"), page.count("title")) == (1, 1, 1)
    assert page.count("table") == page.count("caption") == page.count("thead")
    assert all(attributes.get("scope") in ("row", "col") for tag, attributes in page.elements if tag == "th")
    assert page.count("tr") == sum(tag == "th" and a["scope"] == "row" for tag, a in page.elements) + page.count(
        "table"
    )
    named = [attributes["aria-labelledby"] for tag, attributes in page.elements if tag == "section"]
    assert named == [attributes["id"] for tag, attributes in page.elements if tag == "h2"]


@pytest.mark.thorough
@on_one_engine
def test_a_failed_run_says_so_and_that_its_charge_stands(service, monkeypatch):
    _, run = service.private()
    monkeypatch.setattr(local, "run", lambda: None)
    service.work()
    card, markdown, page = rendered(service, run)
    assert card["statement"].startswith("Nothing was released: the run failed. Its plan is (")
    assert card["statement"].endswith("The charge stands: noise may have been drawn.")
    assert card["problem"]["code"] == "run_failed"
    assert card["versions"] is None
    assert card["ledger"]["reservation_state"] == "committed"
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_run_that_was_cancelled_before_its_start_says_that_nothing_was_charged(service):
    _, run = service.private()
    service.post(f"/v1/runs/{run['id']}/cancel")
    card, markdown, page = rendered(service, run)
    assert card["statement"].startswith("Nothing was released: the run was cancelled. Its plan is (")
    assert card["statement"].endswith("Nothing was charged.")
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_public_run_has_no_books_and_says_that_its_rows_are_public(service):
    rows = [[1, 0.5, "red", "no"], [9, -0.5, "green", "yes"]]
    dataset = {"public": True, "columns": COLUMNS, "label": "y", "rows": rows}
    run = service.queued(dataset=dataset, target={"kind": "gaussian_dp", "mu": 1})
    service.work()
    card, markdown, page = rendered(service, run)
    assert card["data"] == {
        "dataset_id": None,
        "name": None,
        "public": True,
        "declared_size": 2,
        "capacity": 2,
        "held_out_size": None,
    } | {"version": None}
    assert (card["ledger"], card["budget"], card["charge"]) == (None, None, None)
    assert reports.PUBLIC_ROWS in card["caveats"]
    assert "Gaussian DP" in [item["finding"] for item in card["evaluation"]]
    # The registry has no name of its own for it.
    assert {"field": "dp_variant.variant_name", "value": "Custom"} in card["registry"]
    check_every_fact_is_shown(card, markdown, page)
    assert "The run has no budget: nothing was charged." in page.text


def test_a_wide_interval_is_stated_by_its_safe_end() -> None:
    """The lower end bounds the risk of attackers, the upper end everything else."""
    wide = IntervalBody(lower=0.2, estimate=0.3, upper=0.4)
    how: dict[str, Any] = {"method": "closed_form", "error_budget": {}}
    stated = [
        str(bounds_of(each)[0])
        for each in (
            AchievedBayesRiskBody(prior=0.5, bayes_risk=wide, **how),
            AchievedAdvantageBody(advantage=wide, **how),
            AchievedTprBody(fpr=0.1, tpr=wide, **how),
        )
    ]
    assert stated == ["at least 0.2", "at most 0.4", "at most 0.4"]
    assert most_right(AchievedBayesRiskBody(prior=0.5, bayes_risk=wide, **how)) == 0.8


@pytest.mark.parametrize(
    ("risk", "in_numbers", "right"),
    [
        ({"advantage": 0.1234567}, "advantage at most 0.12345", "in at most 56.2 % of cases"),
        ({"tpr": 0.2, "fpr": 0.05}, "true positive rate at most 0.", None),
        ({"bayes_risk": 0.3, "prior": 0.5}, "Bayes risk at least 0.3", "in at most 70.0 % of cases"),
        ({"bayes_risk": 0.1, "prior": 0.2}, "prior probability 0.2", None),
    ],
)
@on_one_engine
def test_a_limit_on_attacks_is_stated_in_every_rendering_and_nothing_more(service, risk, in_numbers, right):
    run = service.queued(dataset_id="ds_breast_cancer", target={"kind": "attack_risk"} | risk)
    service.work()
    card, markdown, page = rendered(service, run)
    assert card["target"] == {"kind": "attack_risk"} | risk
    assert card["statement"].startswith("The released model limits every membership attack (")
    first = page.text.partition("Appendix")[0]
    assert in_numbers in first
    assert right in first if right else "of cases" not in first
    claimed = {item["field"]: item["value"] for item in card["registry"]}
    assert claimed["dp_variant.variant_name"] == "Custom"
    assert claimed["privacy_loss.privacy_parameters.epsilon"] is None
    assert "proved bounds, by" in claimed["privacy_loss.privacy_parameters_details"]
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_seeded_run_claims_no_number_for_anybody(service):
    card, markdown, page = rendered(service, service.queued(dataset_id="ds_breast_cancer", seed=3))
    assert "protects nobody" in card["statement"]
    assert card["seeded"] is True
    claimed = {item["field"]: item["value"] for item in card["registry"]}
    assert claimed["privacy_loss.privacy_parameters.epsilon"] is None
    assert claimed["dp_variant.variant_name"] is None
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_data_set_that_was_deleted_is_named_no_more(service):
    budget = service.budget()
    dataset = service.dataset(name="of the ward", budget_id=budget["id"])
    run = service.queued(dataset_id=dataset["id"], budget_id=budget["id"])
    assert service.report(run)["data"]["name"] == "of the ward"
    assert service.client.delete(f"/v1/datasets/{dataset['id']}").status_code == 204
    assert service.report(run)["data"] == {
        "dataset_id": dataset["id"],
        "version": 1,
        "name": None,
        "public": False,
        "declared_size": 1000,
        "held_out_size": None,
        "capacity": 1125,
    }
    assert "of the ward" not in json.dumps(service.report(run))


@on_one_engine
def test_the_query_goes_before_the_header_and_json_is_what_is_left(service):
    _, run = service.private()
    path = f"/v1/runs/{run['id']}/report"
    for query, accept, expected in (
        ("", "*/*", "application/json"),
        ("", "image/png", "application/json"),
        ("", "text/markdown;q=0.5, text/html;q=0.4", "text/markdown"),
        ("?format=json", "text/html", "application/json"),
        ("?format=markdown", "application/json", "text/markdown"),
    ):
        answer = service.client.get(path + query, headers={"accept": accept})
        assert answer.headers["content-type"].partition(";")[0] == expected
    assert_problem(service.client.get(f"{path}?format=pdf"), 422, "invalid_request", "/query/format")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "a/x"),
        ("", "a/x"),
        ("b/y", "b/y"),
        ("b/*, a/x;q=0.1", "b/y"),
        ("a/x;q=0, */*;q=0.1", "b/y"),
        ("B/Y;Q=0.9,a/x;q=0.8", "b/y"),
        ("b/y;q=none, a/x;q=0.1", "a/x"),
        (",;q=,b/y;q=5", "b/y"),
    ],
)
def test_the_media_type_is_the_one_that_the_client_ranks_highest(accept, expected):
    assert preferred(accept, ["a/x", "b/y"]) == expected


@pytest.mark.one_in(4)
@on_one_engine
@pytest.mark.parametrize(
    ("declared", "caveat"),
    [
        ({}, "One row is taken as one record: a record with several rows has a weaker guarantee."),
        ({"person_column": "who"}, "No person has more than one row, by the ids"),
        ({"person_column": "who", "rows_per_person": 3}, "/v1/account says with group_size 3"),
    ],
)
def test_a_card_says_how_many_rows_a_person_has(service, declared, caveat):
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    header, *rows = ROWS.splitlines()
    with_ids = [f"{header},who", *(f"{row},K-{number}" for number, row in enumerate(rows))]
    rows = "\n".join(with_ids) if declared else ROWS
    dataset = service.dataset(rows, budget_id=budget["id"], **declared)
    run = service.trained(budget_id=budget["id"], dataset_id=dataset["id"])
    card, markdown, page = rendered(service, run)
    assert caveat in card["caveats"][0]
    check_every_fact_is_shown(card, markdown, page)


@on_one_engine
def test_a_card_names_the_certificate_of_its_charge(service):
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    run = service.trained(budget_id=budget["id"], dataset_id="ds_breast_cancer", certificate=True)
    card, markdown, page = rendered(service, run)
    found = card["ledger"]["certificate"]
    certificate = service.client.get(found["path"]).content
    assert sha256_hex(certificate) == found["sha256"]
    verdict = check(certificate)
    assert verdict.verdict == "verified"
    assert verdict.statement.startswith(f"epsilon <= {found['epsilon']!r} at delta 1e-05 ")
    assert found["epsilon"] <= card["achieved"]["epsilon"]["upper"] * (1 + 1e-6)
    check_every_fact_is_shown(card, markdown, page)
    # Other bytes than the entry names are not what the card states.
    stated = str(found["epsilon"]).encode()
    assert certificate.count(b'"epsilon":"' + stated + b'"') == 1
    with service.context.database.write() as session:
        changed = certificate.replace(b'"epsilon":"' + stated + b'"', b'"epsilon":"0.5"')
        session.execute(text("UPDATE certificates SET data = :data"), {"data": changed})
    assert service.report(run)["ledger"]["certificate"] is None
    without = service.trained(budget_id=budget["id"], dataset_id="ds_breast_cancer")
    assert service.report(without)["ledger"]["certificate"] is None


@on_one_engine
def test_a_certificate_is_kept_with_a_charge_alone(service):
    answer = service.run(dataset_id="ds_breast_cancer", budget_id=None, certificate=True)
    assert_problem(answer, 422, "unsupported", "/certificate")


@on_one_engine
def test_a_card_says_that_its_guarantee_is_for_a_group(service):
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    header, *rows = ROWS.splitlines()
    with_ids = [f"{header},who", *(f"{row},K-{number}" for number, row in enumerate(rows))]
    dataset = service.dataset("\n".join(with_ids), budget_id=budget["id"], person_column="who", rows_per_person=3)
    target = {"kind": "approximate_dp", "epsilon": 4.0, "delta": 1e-5, "group_size": 3}
    run = service.trained(budget_id=budget["id"], dataset_id=dataset["id"], target=target)
    card, markdown, page = rendered(service, run)
    assert card["achieved"]["group_size"] == 3
    assert card["achieved"]["epsilon"]["upper"] <= 4.0
    assert "a group of up to 3 is added or removed" in card["statement"]
    assert "at most 3 rows, by the ids that the owner gave. The guarantee is about all of them." in card["caveats"][0]
    check_every_fact_is_shown(card, markdown, page)


GROUPS_OF_THREE = {"kind": "approximate_dp", "epsilon": 4.0, "delta": 1e-5, "group_size": 3}


@on_one_engine
@pytest.mark.parametrize(
    ("relation", "words"),
    [
        ("replace_one", "a group of up to 3 is replaced by others, each of them one record"),
        ("replace_special", "a group of up to 3, each of them one record, is replaced by null records in their places"),
    ],
)
def test_a_card_says_how_groups_differ_under_its_relation(service, relation, words):
    budget = service.budget(neighboring_relation=relation, filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    dataset = service.dataset(budget_id=budget["id"])
    asked = {"neighboring_relation": relation, "target": GROUPS_OF_THREE}
    run = service.queued(budget_id=budget["id"], dataset_id=dataset["id"], **asked)
    assert words in service.report(run)["statement"]
    [said] = [warning for warning in run["warnings"] if "groups of 3 records" in warning]
    assert "what the plan costs one record" in said


@on_one_engine
@pytest.mark.parametrize(
    ("declared", "caveat"),
    [
        ({}, "The guarantee is for 3 of them at a time, and weaker for more."),
        ({"rows_per_person": 2}, "at most 2 rows, by the ids that the owner gave. The guarantee is about all of them."),
        ({"rows_per_person": 5}, "The guarantee is about 3 of them; /v1/account says with group_size 5"),
    ],
)
def test_a_card_compares_its_group_with_the_rows_of_a_person(service, declared, caveat):
    budget = service.budget(filter={"kind": "renyi_dp", "epsilon": 20, "delta": 1e-5})
    header, *rows = ROWS.splitlines()
    content = "\n".join([f"{header},who", *(f"{row},K-{number}" for number, row in enumerate(rows))])
    more = declared and declared | {"person_column": "who"}
    dataset = service.dataset(content if declared else ROWS, budget_id=budget["id"], **more)
    run = service.queued(budget_id=budget["id"], dataset_id=dataset["id"], target=GROUPS_OF_THREE)
    assert caveat in service.report(run)["caveats"][0]
