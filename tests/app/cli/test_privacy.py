"""`epsilond account` and `convert`: the bytes that the endpoints answer, without a server."""

from __future__ import annotations

import hashlib
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from epsilond_verifier import check
from starlette.testclient import TestClient

from app.privacy.convert import CONVERT_EXAMPLES
from app.privacy.examples import ACCOUNT_EXAMPLES
from tests.app.cli.calls import call, done, problem, refused

POISSON = {"kind": "poisson", "sampling_probability": 0.01}


def event(noise: float, count: int = 1, sampling: dict[str, Any] | None = None, kind: str = "gaussian") -> Any:
    mechanism = {"kind": kind, "noise_multiplier": noise}
    return {"mechanism": mechanism, "sampling": sampling or {"kind": "full_batch"}, "count": count}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("options", "body"),
    [
        (
            "--noise-multiplier 1.1 --sampling-probability 0.01 --steps 1000 --delta 1e-5",
            {"events": [event(1.1, 1000, POISSON)], "delta": 1e-5},
        ),
        (
            "--noise-multiplier 4 --steps 10 --relation replace-one --epsilon 1 --epsilon 2",
            {"events": [event(4, 10)], "neighboring_relation": "replace_one", "epsilon": [1, 2]},
        ),
        (
            "--mechanism laplace --noise-multiplier 10 --delta 1e-6 --group-size 2",
            {"events": [event(10, kind="laplace")], "delta": 1e-6, "group_size": 2},
        ),
        (
            "--noise-multiplier 8 --sampling without-replacement --batch-size 100 --dataset-size 5000 --steps 50 "
            "--relation replace_one --delta 1e-5",
            {
                "events": [event(8, 50, {"kind": "without_replacement", "batch_size": 100, "dataset_size": 5000})],
                "neighboring_relation": "replace_one",
                "delta": 1e-5,
            },
        ),
        (
            "--noise-multiplier 3 --sampling shuffled-epochs --steps-per-epoch 100 --steps 500 "
            "--relation replace-special --delta 1e-6",
            {
                "events": [event(3, 500, {"kind": "shuffled_epochs", "steps_per_epoch": 100})],
                "neighboring_relation": "replace_special",
                "delta": 1e-6,
            },
        ),
    ],
)
def test_an_account_is_byte_for_byte_the_endpoints(reader: TestClient, options: str, body: dict[str, Any]) -> None:
    answer = reader.post("/v1/account", json=body)
    assert answer.status_code == 200, answer.text
    assert done("account", *options.split(), "--json").encode() == answer.content + b"\n"


def test_epochs_of_a_loader_that_shuffles_follow_from_its_batch_size() -> None:
    asked = ("account", "--noise-multiplier", 3, "--sampling", "shuffled-epochs", "--relation", "replace-special")
    loader = ("--batch-size", 256, "--dataset-size", 32561, "--epochs", 15, "--delta", 1e-5)
    printed = done(*asked, *loader)
    assert printed.startswith(done(*asked, "--steps-per-epoch", 128, "--steps", 1920, "--delta", 1e-5))
    assert re.search(r"^sampling +shuffled_epochs: steps_per_epoch 128\nsteps +1920$", printed, re.MULTILINE)


def test_batch_sizes_ask_how_batches_are_drawn() -> None:
    given = ("account", "--noise-multiplier", 1.1, "--batch-size", 256, "--delta", 1e-5)
    assert "use --sample-rate 256/32561 instead" in refused(*given, "--dataset-size", 32561, status=2)
    assert "use --sample-rate 256/ROWS instead" in refused(*given, "--epochs", 15, status=2)


def test_an_assumed_sampling_is_named() -> None:
    asked = ("account", "--noise-multiplier", 1.1, "--sample-rate", "256/32561", "--epochs", 15, "--delta", 1e-5)
    rate = f"{256 / 32561:.12f}"
    assumed = re.search(r"^sampling +(.*)\nsteps +1920$", done(*asked), re.MULTILINE)
    assert assumed is not None
    assert assumed[1].startswith(f"poisson: sampling_probability {rate}")
    assert assumed[1].endswith("(assumed: a loader that shuffles costs more)")
    assert "assumed" not in done(*asked, "--sampling", "poisson")


@pytest.mark.one_in(1000)
@pytest.mark.parametrize("name", ["selection", "heterogeneous", "attack_risk"])
def test_an_account_of_a_file_is_byte_for_byte_the_endpoints(reader: TestClient, name: str, tmp_path: Path) -> None:
    body = json.dumps(ACCOUNT_EXAMPLES[name]["value"])
    answer = reader.post("/v1/account", content=body, headers={"Content-Type": "application/json"})
    (tmp_path / "request.json").write_text(body)
    assert done("account", "--json", "--request", tmp_path / "request.json").encode() == answer.content + b"\n"
    assert done("account", "--json", "--request", "-", given=body).encode() == answer.content + b"\n"


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ("--from zcdp --rho 0.5 --to approximate_dp --delta 1e-5", "zcdp_to_approximate_dp"),
        ("--from gaussian-dp --mu 1 --to attack-risk", "gaussian_dp_to_advantage"),
        (
            "--from approximate-dp --epsilon 2 --from-delta 1e-5 --to attack-risk --fpr 0.001",
            "approximate_dp_to_true_positive_rate",
        ),
        ("--request -", "renyi_dp_to_approximate_dp"),
        ("--from pure-dp --epsilon 1 --to zcdp", "pure_dp_to_zcdp"),
    ],
)
def test_a_conversion_is_byte_for_byte_the_endpoints(reader: TestClient, options: str, name: str) -> None:
    body = CONVERT_EXAMPLES[name]["value"]
    answer = reader.post("/v1/convert", json=body)
    printed = done("convert", *options.split(), "--json", given=json.dumps(body))
    assert printed.encode() == answer.content + b"\n"


def test_an_account_is_a_table_with_ends_that_are_rounded_outward() -> None:
    arguments = ("account", "--noise-multiplier", "1.1", "--steps", "10", "--delta", "1e-5", "--delta", "1e-7")
    points = json.loads(done(*arguments, "--json"))["points"]
    header, *lines = done(*arguments).splitlines()
    assert header.split() == ["delta", "epsilon_lower", "epsilon_upper", "method"]
    for line, point in zip(lines, points, strict=False):
        delta, lower, upper, method = line.split()
        assert (float(delta), method) == (point["delta"], point["method"])
        assert point["epsilon"]["lower"] - 1e-8 < float(lower) <= point["epsilon"]["lower"]
        assert point["epsilon"]["upper"] <= float(upper) < point["epsilon"]["upper"] + 1e-8
    assert [line.split() for line in lines[3:]] == [
        ["sampling", "full_batch"],
        ["steps", "10"],
        ["relation", "add_or_remove_one"],
    ]


def test_a_certificate_is_written_and_named(tmp_path: Path) -> None:
    target, none = tmp_path / "certificate.json", tmp_path / "none.json"
    question = ("account", "--noise-multiplier", 2, "--steps", 10, "--delta", 1e-5)
    shown = done(*question, "--certificate", target)
    assert check(target.read_bytes()).verdict == "verified"
    assert hashlib.sha256(target.read_bytes()).hexdigest() in shown
    shown = done(*question, "--mechanism", "laplace", "--sampling-probability", 0.1, "--certificate", none)
    assert "no certificate covers laplace with poisson" in shown
    assert not none.exists()


def test_the_advantage_of_an_attacker_is_beside_the_table_and_rounded_up() -> None:
    body = json.dumps(ACCOUNT_EXAMPLES["attack_risk"]["value"])
    upper = json.loads(done("account", "--json", "--request", "-", given=body))["attack_risk"]["advantage"]["upper"]
    [shown] = re.findall(r"^advantage at most +(\S+)$", done("account", "--request", "-", given=body), re.MULTILINE)
    assert upper <= float(shown) < upper + 1e-9


def test_a_delta_is_answered_at_an_epsilon() -> None:
    header, line, *_ = done("account", "--noise-multiplier", "1", "--epsilon", "4.3771780956812246").splitlines()
    assert header.split()[:3] == ["epsilon", "delta_lower", "delta_upper"]
    assert float(line.split()[1]) <= 1e-5 <= float(line.split()[2])


def test_a_conversion_shows_the_textbooks_beside_the_best() -> None:
    table = done("convert", "--from", "zcdp", "--rho", "0.1", "--to", "approximate-dp", "--delta", "1e-5")
    best, *others = (float(line.split("epsilon ")[1].split(",")[0]) for line in table.splitlines()[1:4])
    assert all(best < other for other in others)
    assert "tight   yes" in table


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ("--noise-multiplier 1.1", "--delta: give delta to get epsilon, or epsilon to get delta; exactly one of them."),
        ("--delta 1e-5", "--noise-multiplier: This field is required."),
        (
            "--noise-multiplier 1.1 --delta 1e-5 --sampling poisson",
            "--sampling-probability: This field is required.",
        ),
        ("--noise-multiplier 0 --delta 1e-5", "--noise-multiplier: Input should be greater than or equal to 0.001."),
        ("--noise-multiplier 1 --delta 1e-5 --delta 2", "--delta: Input should be less than or equal to 0.5."),
        ("--noise-multiplier 1 --delta 1e-5 --relation neighbours", "--relation: Input should be 'add_or_remove_one'"),
        (
            "--noise-multiplier 1 --delta 1e-5 --mechanism cauchy",
            "--mechanism: The kind should be one of 'gaussian'",
        ),
    ],
)
def test_what_is_wrong_is_told_of_the_option(options: str, line: str) -> None:
    assert line in refused("account", *options.split())


def test_a_wrong_request_is_the_endpoints_problem(reader: TestClient) -> None:
    for options, body in (
        ("--noise-multiplier 0 --delta 2", {"events": [event(0)], "delta": 2}),
        (
            "--noise-multiplier 1 --delta 1e-5 --sampling shuffled-epochs --steps-per-epoch 5",
            {"events": [event(1, sampling={"kind": "shuffled_epochs", "steps_per_epoch": 5})], "delta": 1e-5},
        ),
    ):
        served = reader.post("/v1/account", json=body).json()
        del served["request_id"]
        assert problem("account", *options.split()) == served


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "It is not JSON: see line 1, column 2"),
        (b'{"delta": NaN}', ", /delta: A number must be finite"),
        (b'{"delta": 1e-5, "delta": 1e-6}', ", /delta: An object has this key twice"),
        (b"\xff", "It is not UTF-8: see byte 0"),
        (b"[]", ": Input should be an object"),
        (b'{"events": [], "delta": 1e-5}', ", /events: List should have at least 1 item"),
        (b'{"events": [{"mechanism": {"kind": "gaussian"}}], "x": 1}', "noise_multiplier: This field is required"),
        (b" " * (2**20 + 1), "is larger than 1048576 bytes"),
    ],
)
def test_a_file_that_is_no_request_is_one_line_that_says_where(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "request.json"
    file.write_bytes(content)
    line = refused("account", "--request", file)
    assert line.startswith(f"epsilond: {file}")
    assert words in line


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    assert "No such file or directory" in refused("account", "--request", tmp_path / "missing")
    assert "Is a directory" in refused("convert", "--request", tmp_path)


def test_a_file_and_options_exclude_each_other(tmp_path: Path) -> None:
    line = refused("account", "--request", tmp_path / "x", "--delta", "1e-5", status=2)
    assert (
        "--request: the file takes the place of the options: give one or the other. See `epsilond account --help`."
        in line
    )


def test_faults_of_the_command_line_are_one_line_with_status_2() -> None:
    line = refused("account", "--nois", "1", status=2)
    assert "No such option: --nois. Did you mean --noise-multiplier? See `epsilond account --help`." in line
    for command, other, ours in (
        ("account", "--sigma", "--noise-multiplier"),
        ("calibrate", "--clip", "--max-grad-norm"),
        ("calibrate", "--sample-rate", "--batch-size"),
        ("calibrate", "--n", "--dataset-size"),
    ):
        line = refused(command, other, "1", status=2)
        assert f"No such option: {other}. Did you mean {ours}? See" in line, "as other libraries call it"
    assert "'--steps'" in refused("account", "--steps", "many", status=2)
    line = refused("acount", status=2)
    assert "Did you mean 'account'" in line
    assert "?." not in line
    assert problem("account", "--steps", "many", status=2).keys() == {"detail"}


def test_a_question_ends_as_one() -> None:
    line = refused("account", "--request", "-", given=json.dumps({"events": [], "detla": 1e-5}))
    assert line.rstrip().endswith("Did you mean delta?")


def test_escapes_of_a_terminal_are_shown_and_not_obeyed() -> None:
    body = {"events": [{"mechanism": {"kind": "gaussian", "noise_multiplier": 1, "\x1b[2J\u202e": 1}}], "delta": 1e-5}
    line = refused("account", "--request", "-", given=json.dumps(body))
    assert "/events/0/mechanism/\\x1b[2J\\u202e: There is no field of this name here." in line


def test_warnings_are_beside_the_table() -> None:
    result = call(
        "account", "--noise-multiplier", "3", "--sampling", "shuffled-epochs", "--steps-per-epoch", "100",
        "--steps", "500", "--relation", "replace-special", "--delta", "1e-6",
    )  # fmt: skip
    assert result.stderr.startswith("warning: ")
    assert "warning" not in result.stdout


def test_the_words_of_opacus_are_understood() -> None:
    noise = ("account", "--noise-multiplier", "1.1", "--delta", "1e-5", "--json")
    rate = done(*noise, "--sample-rate", "1/128", "--epochs", "15")
    assert rate == done(*noise, "--sampling-probability", "0.0078125", "--steps", "1920")
    third = done(*noise, "--sample-rate", "1/3", "--epochs", "2")
    assert third == done(*noise, "--sample-rate", str(math.nextafter(1 / 3, 1)), "--steps", "6")
    for wrong in ("1/0", "a/b", "half"):
        said = refused(*noise[:-1], "--sample-rate", wrong, status=2)
        assert "such as 0.01, or a quotient such as 256/32561" in " ".join(said.split())
    # The option is named as it was typed.
    for option in ("--sample-rate", "--sampling-probability"):
        assert refused(*noise[:-1], option, "3/2", "--epochs", "1").startswith(f"epsilond: {option}: ")
        assert f"value for {option}" in refused(*noise[:-1], option, "half", status=2)
    both = ("--sample-rate", "0.1", "--sampling-probability", "0.1")
    assert "leave one of them out" in refused(*noise[:-1], *both, status=2)
    assert ", not both" in refused(*noise[:-1], "--sample-rate", "0.1", "--epochs", "1", "--steps", "2", status=2)
    assert "need a --sample-rate" in refused(*noise[:-1], "--epochs", "1", status=2)
