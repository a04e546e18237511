"""Calls of each library as their users write them: what is released, charged, supposed and missing."""

from __future__ import annotations

import math
import pickle
from contextlib import suppress
from typing import Any

import pytest

from accounting.accountant import epsilon_for_delta
from accounting.errors import AccountingError, InvalidValue, Unsupported
from accounting.events import Event, FullBatch, Gaussian, Laplace, Poisson, ShuffledEpochs, WithoutReplacement
from accounting.events.samplings import TruncatedPoisson
from accounting.interoperability import Batches
from accounting.interoperability.calls import Incomplete, Known, read_call
from accounting.interoperability.calls.reading import READERS
from accounting.interoperability.opacus import OpacusHistory
from accounting.relations import NeighboringRelation

ADD, NULL, REPLACE = (
    NeighboringRelation.ADD_OR_REMOVE_ONE,
    NeighboringRelation.REPLACE_SPECIAL,
    NeighboringRelation.REPLACE_ONE,
)
LOADER = "data_loader=DataLoader(data, batch_size=600, shuffle=True)"
ENGINE = "engine = PrivacyEngine(accountant='rdp')\n"
SIZES: dict[str, Any] = {"dataset_size": 60_000, "batch_size": 600}


def gaussian(noise: float, rate: float, steps: int) -> tuple[Event, ...]:
    return (Event(Gaussian(noise), Poisson(rate), steps),)


def released(text: str, **known: Any) -> tuple[Event, ...]:
    return read_call(text, Known(**known)).imported().events


@pytest.mark.parametrize(
    ("text", "known", "events"),
    [
        # Opacus
        (
            f"model, optimizer, loader = engine.make_private(module=model, optimizer=optimizer, {LOADER},\n"
            "    noise_multiplier=1.1, max_grad_norm=1.0)",
            {"dataset_size": 60_000, "epochs": 10, "delta": 1e-5},
            gaussian(1.1, 0.01, 1000),
        ),
        # 60,100 records are 101 batches, the last of which is short.
        (
            f"make_private({LOADER}, noise_multiplier=1.1)",
            {"dataset_size": 60_100, "epochs": 10, "delta": 1e-5},
            gaussian(1.1, 1 / 101, 1010),
        ),
        (
            "make_private(data_loader=DataLoader(data, 600, drop_last=True), noise_multiplier=1.1)",
            {"dataset_size": 60_100, "epochs": 10, "delta": 1e-5},
            gaussian(1.1, 0.01, 1000),
        ),
        # Its sampler makes int(1 / (1 / 93)) = 92 batches an epoch, and the engine's rate is 1 over them.
        (
            "make_private(noise_multiplier=1.1)",
            {"dataset_size": 930, "batch_size": 10, "epochs": 2, "delta": 1e-5},
            gaussian(1.1, 1 / 92, 184),
        ),
        (
            "make_private(noise_multiplier=1.1, poisson_sampling=False)",
            {"dataset_size": 930, "batch_size": 10, "epochs": 2, "delta": 1e-5},
            (Event(Gaussian(1.1), ShuffledEpochs(93), 186),),
        ),
        ("make_private(noise_multiplier=1.1)", SIZES | {"steps": 55, "delta": 1e-5}, gaussian(1.1, 0.01, 55)),
        (
            "sigma = get_noise_multiplier(target_epsilon=3.0, target_delta=1e-5, sample_rate=0.01, epochs=10)\n"
            "engine.make_private(noise_multiplier=sigma)",
            SIZES,
            gaussian(0.865478515625, 0.01, 1000),
        ),
        (
            "make_private_with_epsilon(target_epsilon=3.0, target_delta=1e-5, epochs=10)",
            SIZES | {"noise_multiplier": 0.9},
            gaussian(0.9, 0.01, 1000),
        ),
        (
            "get_noise_multiplier(target_epsilon=3, target_delta=1e-5, sample_rate=1 / 100, epochs=10)",
            {},
            gaussian(0.865478515625, 0.01, 1000),
        ),
        (
            "get_noise_multiplier(target_epsilon=3, target_delta=1e-5, sample_rate=1 / len(loader), steps=1000)",
            SIZES,
            gaussian(0.865478515625, 0.01, 1000),
        ),
        (
            "a = RDPAccountant()\na.step(noise_multiplier=1.1, sample_rate=0.01)\na.get_epsilon(delta=1e-5)",
            {"steps": 40},
            gaussian(1.1, 0.01, 40),
        ),
        (
            "a = PRVAccountant()\na.history = [(1.1, 0.01, 40), (2.0, 0.5, 3)]\na.get_epsilon(1e-5)",
            {},
            gaussian(1.1, 0.01, 40) + gaussian(2.0, 0.5, 3),
        ),
        # TensorFlow Privacy: its statement halves the noise unless it is told that no microbatches were used.
        (
            "compute_dp_sgd_privacy_statement(number_of_examples=60_000, batch_size=600, num_epochs=10,\n"
            "    noise_multiplier=2.2, delta=1e-5)",
            {},
            gaussian(1.1, 0.01, 1000),
        ),
        (
            "tf_privacy.compute_dp_sgd_privacy_statement(60_000, 600, 10.5, 1.1, 1e-5, used_microbatching=False)",
            {},
            gaussian(1.1, 0.01, 1050),
        ),
        ("compute_dp_sgd_privacy(60000, 600, 1.1, 10, 1e-5)", {}, gaussian(1.1, 0.01, 1000)),
        (
            "compute_dp_sgd_privacy(60000, 600, 1.1, 10, 1e-5)",
            {"batches": Batches.SHUFFLED},
            (Event(Gaussian(1.1), ShuffledEpochs(100), 1000),),
        ),
        # dp-accounting
        (
            "SelfComposedDpEvent(PoissonSampledDpEvent(0.01, GaussianDpEvent(1.1)), 1000)",
            {"delta": 1e-5},
            gaussian(1.1, 0.01, 1000),
        ),
        (
            "step = dp.PoissonSampledDpEvent(sampling_probability=0.01, event=dp.GaussianDpEvent(1.1))\n"
            "dp_accounting.rdp.RdpAccountant().compose(step, 1000).get_epsilon(1e-5)",
            {},
            gaussian(1.1, 0.01, 1000),
        ),
        (
            "accountant.compose(ComposedDpEvent([GaussianDpEvent(3.0), LaplaceDpEvent(4.0)]), 5)",
            {"delta": 1e-5},
            (Event(Gaussian(3.0), FullBatch(), 5), Event(Laplace(4.0), FullBatch(), 5)),
        ),
        # JAX Privacy
        (
            "params = DpParams(noise_multipliers=1.1, num_samples=60_000, delta=1e-5, batch_size=600)\n"
            "DpsgdTrainingAccountant(PldAccountantConfig()).compute_epsilon(1000, params)",
            {},
            gaussian(1.1, 0.01, 1000),
        ),
        (
            "DpParams(noise_multipliers=1.1, num_samples=60_000, delta=1e-5, batch_size=100, cycle_length=6)",
            {"steps": 1001},
            gaussian(1.1, 0.01, 167),
        ),
        (
            "DpParams(noise_multipliers=1.1, num_samples=60_000, delta=1e-5, batch_size=600,\n"
            "    sampling_method=SamplingMethod.FIXED_BATCH_SIZE)",
            {"steps": 1000},
            (Event(Gaussian(1.1), WithoutReplacement(600, 60_000), 1000),),
        ),
        (
            "DpParams(noise_multipliers=1.1, num_samples=600, delta=1e-5, batch_size=60, truncated_batch_size=90)",
            {"steps": 9},
            (Event(Gaussian(1.1), TruncatedPoisson(0.1, 90, 600, "random"), 9),),
        ),
        ("dpsgd_event(1.1, 1000, sampling_prob=0.01)", {"delta": 1e-5}, gaussian(1.1, 0.01, 1000)),
        (
            "amplified_bandmf_event(1.1, 1001, num_bands=4, sampling_prob=0.04)",
            {"delta": 1e-5},
            gaussian(1.1, 0.04, 251),
        ),
        (
            "PLDAccountant(NeighboringRelation.REPLACE_ONE).compose(\n"
            "    fixed_dpsgd_event(1.1, 9, dataset_size=600, batch_size=60)).get_epsilon(1e-5)",
            {},
            (Event(Gaussian(1.1), WithoutReplacement(60, 600), 9),),
        ),
        (
            "truncated_amplified_bandmf_event(noise_multiplier=1.1, iterations=9, num_bands=2, sampling_prob=0.1,\n"
            "    largest_group_size=300, truncated_batch_size=90)",
            {"delta": 1e-5},
            (Event(Gaussian(1.1), TruncatedPoisson(0.1, 90, 300, "random"), 5),),
        ),
        (
            "execution_plan.BandMFExecutionPlanConfig(strategy=[1.0, 0.5, 0.2], iterations=1000, epsilon=None,\n"
            "    delta=1e-5, noise_multiplier=1.1, sampling_prob=0.4)",
            {},
            gaussian(1.1, 0.4, 334),
        ),
        (
            "BandMFExecutionPlanConfig.default(4, 1000, noise_multiplier=1.1, delta=1e-5, sampling_prob=0.4)",
            {},
            gaussian(1.1, 0.4, 250),
        ),
        (
            "DPKerasConfig(epsilon=8, delta=1e-5, clipping_norm=1.0, batch_size=60, gradient_accumulation_steps=10,\n"
            "    train_steps=1000, train_size=60_000, noise_multiplier=1.1, poisson_sampling_in_fit=True)",
            {},
            gaussian(1.1, 0.01, 1000),
        ),
        (
            "make_private(model, DPKerasConfig(8.0, 1e-5, 1.0, 600, 1, 1000, 60_000, noise_multiplier=1.1))",
            {},
            (Event(Gaussian(1.1), ShuffledEpochs(100), 1000),),
        ),
    ],
)
@pytest.mark.one_in(3)
def test_a_call_is_what_its_library_makes_of_it(text: str, known: dict[str, Any], events: tuple[Event, ...]) -> None:
    assert released(text, **known) == events


@pytest.mark.parametrize(
    ("text", "known", "relation", "accountant", "delta"),
    [
        (ENGINE + "engine.make_private(noise_multiplier=2)", SIZES | {"epochs": 1, "delta": 1e-6}, ADD, "rdp", 1e-6),
        ("make_private(noise_multiplier=2)", SIZES | {"epochs": 1, "delta": 1e-6}, ADD, "prv", 1e-6),
        # A shuffled pass has no account under the library's own relation.
        (
            "make_private(noise_multiplier=2, poisson_sampling=False)",
            SIZES | {"epochs": 1, "delta": 1e-6},
            NULL,
            "prv",
            1e-6,
        ),
        (
            "make_private(noise_multiplier=2, poisson_sampling=False)",
            SIZES | {"epochs": 1, "delta": 1e-6, "relation": REPLACE},
            REPLACE,
            "prv",
            1e-6,
        ),
        ("PLDAccountant(REPLACE_SPECIAL).compose(GaussianDpEvent(2)).get_epsilon(1e-7)", {}, NULL, "pld", 1e-7),
        ("BandMFExecutionPlanConfig.default(1, 9, noise_multiplier=2, delta=1e-7)", {}, NULL, "pld", 1e-7),
        (
            "DpParams(noise_multipliers=2, num_samples=60, delta=1e-5, batch_size=6,"
            " sampling_method='FIXED_BATCH_SIZE')",
            {"steps": 3},
            REPLACE,
            "pld",
            1e-5,
        ),
        (
            "compute_dp_sgd_privacy_statement(60, 6, 1, 2, 1e-5, accountant_type=AccountantType.PLD)",
            {},
            ADD,
            "pld",
            1e-5,
        ),
    ],
)
def test_relation_accountant_and_delta_are_the_calls_own(
    text: str, known: dict[str, Any], relation: NeighboringRelation, accountant: str, delta: float
) -> None:
    found = read_call(text, Known(**known))
    assert (found.relation, found.accountant, found.delta) == (relation, accountant, delta)


def test_what_is_not_said_is_supposed_aloud() -> None:
    found = read_call("make_private(noise_multiplier=2, poisson_sampling=False)", Known(**SIZES, epochs=1, delta=1e-6))
    assert {each.name: each.value for each in found.assumed} == {
        "accountant": "prv",
        "secure_mode": "False",
        "drop_last": "False",
        "batches": "shuffled",
        "neighboring_relation": "replace_special",
    }
    told = read_call(
        f"PrivacyEngine(accountant='gdp', secure_mode=True).make_private({LOADER}, noise_multiplier=2)",
        Known(dataset_size=60_000, epochs=1, delta=1e-6),
    )
    assert {each.name for each in told.assumed} == {"batches"}
    assert told.said == {
        "accountant": "gdp",
        "secure_mode": "True",
        "batch_size": "600",
        "noise_multiplier": "2",
    }


def test_a_loader_that_does_otherwise_than_the_call_says_is_believed() -> None:
    known = Known(**SIZES, epochs=1, delta=1e-6, batches=Batches.SHUFFLED)
    found = read_call("make_private(noise_multiplier=2, poisson_sampling=True)", known)
    assert found.imported().events == (Event(Gaussian(2.0), ShuffledEpochs(100), 100),)
    assert [each.reason for each in found.assumed if each.name == "batches"] == ["Filled in beside the call."]


@pytest.mark.parametrize("accountant", ["rdp", "prv", "gdp"])
def test_the_noise_that_opacus_looks_for_meets_its_target_as_it_charges(accountant: str) -> None:
    call = "make_private_with_epsilon(target_epsilon=3.0, target_delta=1e-5, epochs=10)"
    found = read_call(f"PrivacyEngine(accountant='{accountant}').{call}", Known(**SIZES))
    assert isinstance(found.record, OpacusHistory)
    assert found.target_epsilon == 3.0
    reported = found.imported().reported.epsilon
    assert reported is not None
    assert 2.99 <= reported <= 3.0


@pytest.mark.parametrize(
    "text",
    [
        "calibrate_noise_multiplier(target_epsilon=2.0, accountant=a, batch_sizes=600, num_updates=1000,\n"
        "    num_samples=60_000, target_delta=1e-5)",
        "BandMFExecutionPlanConfig.default(num_bands=4, iterations=4000, epsilon=2.0, delta=1e-5, sampling_prob=0.01)",
        "DPKerasConfig(2.0, 1e-5, 1.0, 600, 1, 1000, 60_000, poisson_sampling_in_fit=True)",
    ],
)
def test_the_noise_that_jax_privacy_looks_for_is_bounded_from_below(text: str) -> None:
    found = read_call(text)
    epsilon = epsilon_for_delta(found.imported().events, found.relation, found.delta).value
    assert 2.0 <= epsilon.lower < 2.0 + 1e-4
    assert [each.value for each in found.assumed if each.name == "noise_multiplier"]


def test_noise_that_is_not_bounded_from_below_is_asked_for() -> None:
    text = (
        "calibrate_noise_multiplier(target_epsilon=2.0, accountant=a, batch_sizes=60, num_updates=100,\n"
        "    num_samples=600, target_delta=1e-5, truncated_batch_size=70)"
    )
    with pytest.raises(Incomplete, match="does not say the noise multiplier"):
        read_call(text)
    [event] = read_call(text, Known(noise_multiplier=3.0)).imported().events
    assert event.mechanism == Gaussian(3.0)


@pytest.mark.parametrize(
    ("text", "known", "missing"),
    [
        ("make_private(noise_multiplier=1.1)", {}, "dataset_size batch_size delta epochs"),
        (f"make_private({LOADER}, noise_multiplier=sigma)", {"steps": 4}, "dataset_size delta noise_multiplier"),
        ("make_private(noise_multiplier=1, poisson_sampling=flag)", SIZES | {"steps": 3, "delta": 1e-5}, "batches"),
        ("make_private_with_epsilon(target_epsilon=3, target_delta=delta, epochs=EPOCHS)", SIZES, "delta epochs"),
        (
            "get_noise_multiplier(target_epsilon=3, target_delta=1e-5, sample_rate=q, epochs=3)",
            {},
            "dataset_size batch_size",
        ),
        ("RDPAccountant().step(noise_multiplier=1, sample_rate=0.1)", {}, "delta steps"),
        ("DpParams(noise_multipliers=1, num_samples=len(data), delta=1e-5, batch_size=6)", {}, "steps dataset_size"),
        ("GaussianDpEvent(1.0)", {}, "delta"),
    ],
)
def test_what_is_missing_is_asked_for_all_at_once(text: str, known: dict[str, Any], missing: str) -> None:
    with pytest.raises(Incomplete) as refused:
        read_call(text, Known(**known))
    assert set(refused.value.missing) == set(missing.split())
    assert pickle.loads(pickle.dumps(refused.value)).missing == refused.value.missing


def test_a_name_without_a_value_is_named() -> None:
    with pytest.raises(Incomplete, match="The call says epochs=EPOCHS, whose value is not in the pasted text"):
        read_call("make_private_with_epsilon(target_epsilon=3, target_delta=1e-5, epochs=EPOCHS)", Known(**SIZES))


@pytest.mark.parametrize(
    ("text", "known", "said", "pointer"),
    [
        ("", {}, "the text contains no call; calls of make_private,", ()),
        ("train(3)", {}, "train cannot be read here", ()),
        ("make_privat(3)", {}, r"Did you mean make_private\?", ()),
        (
            "make_private(model)",
            {},
            r"make_private takes its arguments by name, and 1 are given in this way \(line 1, column 1\)",
            (),
        ),
        ("make_private(noise_multipler=1)", {}, r"takes no argument noise_multipler .*mean noise_multiplier\?", ()),
        ("GaussianDpEvent(sigma=1)", {}, "takes no argument sigma", ()),
        ("GaussianDpEvent(sigma)", {}, "noise_multiplier of GaussianDpEvent must be written out, not sigma", ()),
        ("make_private(noise_multiplier='1')", SIZES, "noise_multiplier must be a number", ()),
        ("make_private(noise_multiplier=-1)", SIZES, r"noise_multiplier must be in \[0.001, 1e\+06\]", ()),
        ("make_private(noise_multiplier=True)", SIZES, "noise_multiplier must be a number", ()),
        ("make_private(noise_multiplier=1, poisson_sampling=1)", SIZES, "poisson_sampling must be True or False", ()),
        ("make_private(noise_multiplier=1, clipping='adaptive')", SIZES, "adaptive clipping", ()),
        (
            "PrivacyEngine(accountant='pld').make_private(noise_multiplier=1)",
            {},
            "accountant is none of rdp, prv, gdp",
            (),
        ),
        ("make_private(noise_multiplier=1)\nmake_private(noise_multiplier=2)", {}, "called twice", ()),
        (
            f"make_private({LOADER}, noise_multiplier=1)",
            {"batch_size": 60},
            "the call says batch_size=600",
            ("batch_size",),
        ),
        ("calibrate_num_updates(target_epsilon=3)", {}, "calibrate_num_updates looks for a number", ()),
        ("compute_dp_sgd_privacy_statement(60, 6, 1, 1, 1e-5, max_examples_per_user=3)", {}, "group_size", ()),
        ("compute_dp_sgd_privacy(60, 600, 1, 1, 1e-5)", {}, "a batch of 600 is larger than the 60 records", ()),
        (
            "DpParams(noise_multipliers=[(0, 1.0)], num_samples=60, delta=1e-5, batch_size=6)",
            {"steps": 1},
            "must be a number",
            (),
        ),
        ("accountant.compose(event)", {"delta": 1e-5}, "the composed event must be written out, not event", ()),
        ("accountant.compose(GaussianDpEvent(1.0), 1e9)", {"delta": 1e-5}, "count must be in", ()),
        (
            "BandMFExecutionPlanConfig(strategy=s, iterations=9, epsilon=1, delta=1e-5)",
            {},
            "strategy must be written out",
            (),
        ),
    ],
)
def test_what_is_wrong_is_told_with_its_place(
    text: str, known: dict[str, Any], said: str, pointer: tuple[str, ...]
) -> None:
    with pytest.raises(InvalidValue, match=said) as refused:
        read_call(text, Known(**known))
    assert refused.value.pointer == pointer


def test_what_has_no_account_is_refused_with_its_reason() -> None:
    with pytest.raises(Unsupported, match=r"NonPrivateDpEvent: .* \(line 1, column 18\)"):
        read_call("ComposedDpEvent([NonPrivateDpEvent()])", Known(delta=1e-5))


@pytest.mark.parametrize("name", READERS)
def test_no_reader_fails_otherwise_than_by_a_refusal(name: str) -> None:
    for arguments in ("", "None", "[]", "f(x)", "x=1", "delta=[], epsilon=()", "1, 2, 3", "'a', True, None, [1], f()"):
        for known in (Known(), Known(60, 6, 1.0, 10, 1.0, 1e-5, Batches.SHUFFLED, NULL)):
            with suppress(AccountingError):
                assert math.isfinite(read_call(f"{name}({arguments})", known).delta)
