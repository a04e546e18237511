"""The fields of a calibration's form: their names in the address, their labels, and their places in a request."""

from __future__ import annotations

from collections.abc import Mapping

from app.dashboard.wording import words

#: The form's values when it first appears: the common case.
START: Mapping[str, str] = {
    "algorithm": "dp_sgd",
    "dataset_size": "50000",
    "batch_size": "1000",
    "iterations": "5000",
    "sampling": "poisson",
    "neighboring_relation": "add_or_remove_one",
    "gradient_bound": "clip",
    "target": "approximate_dp",
    "solve_for": "noise_multiplier",
}
#: The values of fields when they first appear.
FIRST_VALUES: Mapping[str, str] = {
    "noise_multiplier": "1.1",
    "max_batch_size": "1200",
    "bands": "auto",
    "max_grad_norm": "1",
    "regularizer": "1",
    "epsilon": "8",
    "delta": "1e-5",
    "rho": "0.5",
    "mu": "1",
    "advantage": "0.2",
    "fpr": "0.01",
    "tpr": "0.05",
    "prior": "0.5",
    "bayes_risk": "0.4",
}
#: The fields of each target, by its name in the form. The last three are different statements of an attack risk.
TARGETS: Mapping[str, tuple[str, ...]] = {
    "approximate_dp": ("epsilon", "delta"),
    "pure_dp": ("epsilon",),
    "zcdp": ("rho",),
    "gaussian_dp": ("mu",),
    "advantage": ("advantage",),
    "true_positive_rate": ("tpr", "fpr"),
    "bayes_risk": ("bayes_risk", "prior"),
}
#: The target that can protect several records of one owner together.
FOR_GROUPS = "approximate_dp"
RISKS = ("advantage", "true_positive_rate", "bayes_risk")
#: The schemes for which a request gives a batch size.
WITH_BATCH_SIZE = (
    "poisson",
    "truncated_poisson",
    "without_replacement",
    "random_allocation",
    "blocks",
    "shuffled_epochs",
    "cyclic_poisson",
    "fixed_order_epochs",
)
#: The sampling scheme that also has a largest batch size.
TRUNCATED = "truncated_poisson"
#: The fields of correlated noise.
CORRELATION = ("bands", "objective", "max_bands")
#: The prefix of the names of constants.
CONSTANT = "assumptions."

CHOICES: Mapping[str, Mapping[str, str]] = {
    "solve_for": {
        "noise_multiplier": "the least noise",
        "iterations": "the most steps",
        "batch_size": "the largest batch",
        "epsilon": "epsilon of given noise",
        "delta": "delta of given noise",
    },
    "target": {
        "approximate_dp": "(epsilon, delta)-DP",
        "pure_dp": "epsilon-DP, without a delta",
        "zcdp": "zero-concentrated DP",
        "gaussian_dp": "Gaussian DP",
        "advantage": "attack risk: advantage",
        "true_positive_rate": "attack risk: true positives",
        "bayes_risk": "attack risk: Bayes risk",
    },
    "sampling": {
        "poisson": "Poisson: each record by itself",
        "truncated_poisson": "Poisson, with a random subset of a batch that is too large",
        "without_replacement": "batches of a fixed size",
        "full_batch": "all records in every step",
        "random_allocation": "random allocation: each record draws its step of every epoch",
        "blocks": "blocks: each record draws its step of every block of steps",
        "disjoint_batches": "one pass over disjoint batches",
        "shuffled_epochs": "shuffled epochs, without amplification",
        "cyclic_poisson": "Poisson from one group of records after the other",
        "fixed_order_epochs": "the same batches in the same order in every epoch",
    },
    "neighboring_relation": {
        "add_or_remove_one": "one record added or removed",
        "replace_one": "one record replaced",
        "replace_special": "one record replaced by a null record",
    },
    "objective": {
        "mean": "the root mean square over all steps",
        "max": "the last step, whose error is the largest",
    },
    "dtype": {
        "": "float32, unless it would do no good",
        "float32": "float32",
        "float64": "float64",
    },
    "step_size_schedule": {
        "constant": "all equal",
        "linear": "falling along a line",
        "cosine": "falling along half a cosine",
    },
    "gradient_bound": {
        "clip": "clip each gradient to a norm",
        "normalize": "normalise each gradient",
        "": "as the assumptions imply",
    },
}
_LABELS: Mapping[str, str] = {
    "solve_for": "Solve for",
    "dataset_size": "Records",
    "capacity": "Records, at most",
    "dimension": "Parameters",
    "sampling": "Sampling",
    "batch_size": "Batch size",
    "max_batch_size": "Largest batch size",
    "iterations": "Steps",
    "dtype": "Numeric type of a run",
    "neighboring_relation": "Neighbouring data sets differ by",
    "gradient_bound": "Bound on gradients",
    "max_grad_norm": "Clip norm C",
    "regularizer": "Regularizer",
    "bands": "Bands",
    "max_bands": "Bands that are tried, at most",
    "step_size_schedule": "Step sizes",
    "cooldown": "Share of the steps in which they fall",
    "objective": "Error to be made small",
    "target": "Guarantee",
    "group_size": "For this many records together",
    "budget_id": "Show the cost in a budget",
    "tpr": "true positive rate, at most",
    "fpr": "at the false positive rate",
    "bayes_risk": "Bayes risk, at least",
    "prior": "at the prior",
    "advantage": "advantage, at most",
}
HINTS: Mapping[str, str] = {
    "dataset_size": "A public number.",
    "capacity": "Slots that batches are drawn from. Left out: an eighth more than the records, at least 8.",
    "batch_size": "Expected records in a step.",
    "group_size": "Left out: one. All records of one owner, where an owner has several.",
    "noise_multiplier": "Noise on the sum, over C.",
    "regularizer": "Gradients are divided by it plus their norm.",
    "bands": "How many steps the noise of a step depends on: a number, or auto.",
    "max_bands": "Left out: 64. A run keeps 4 bytes per parameter for each band after the first.",
    "momentum": "Left out: 0.",
    "cooldown": "Of the last steps. Left out: 1, which is all of them.",
}
_POINTERS: Mapping[str, tuple[str, ...]] = {
    "gradient_bound": ("/gradient_bound", "/gradient_bound/kind"),
    "max_grad_norm": ("/gradient_bound/max_grad_norm",),
    "regularizer": ("/gradient_bound/regularizer",),
    "target": ("/target", "/target/kind"),
    "sampling": ("/sampling", "/sampling/kind"),
    "max_batch_size": ("/sampling/max_batch_size",),
    "momentum": ("/hyperparameters/momentum",),
    "step_size_schedule": ("/hyperparameters/step_size_schedule", "/hyperparameters/step_size_schedule/kind"),
    "cooldown": ("/hyperparameters/step_size_schedule/cooldown",),
    **{name: (f"/correlation/{name}",) for name in CORRELATION},
    "group_size": ("/target/group_size",),
    **{name: (f"/target/{name}",) for names in TARGETS.values() for name in names},
}


def label_of(name: str) -> str:
    """Return the words above a field."""
    return _LABELS.get(name) or words(name)[:1].upper() + words(name)[1:]


def pointers_of(name: str) -> tuple[str, ...]:
    """Return the JSON pointers at which faults of a field appear."""
    return _POINTERS.get(name, (f"/{name}",))
