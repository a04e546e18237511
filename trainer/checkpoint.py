"""Checkpoints: a trainer's whole state as bytes, so that a run can go on after its process died.

A checkpoint holds the noise, the parameters and a permutation of the records. So it is as secret as the data, and is
deleted with the run. Numbers and names are JSON, arrays are NPY inside a zip; nothing is pickled.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from accounting.errors import InvalidValue
from trainer.arrays import to_host

State = dict[str, Any]
_ARRAY = "array"
_LAYOUT = 3


@dataclass(frozen=True, slots=True)
class Binding:
    """The run to which a checkpoint belongs. It is refused for any other run.

    Attributes:
        plan_hash: The hash of the plan.
        data_tag: A keyed hash of the data, made by the caller.
        code_version: The version of the program that wrote the checkpoint.
    """

    plan_hash: str
    data_tag: str
    code_version: str


@dataclass(frozen=True)
class Checkpoints:
    """Settings by which a run keeps checkpoints.

    Attributes:
        save: A function that stores the bytes in place of earlier ones.
        is_due: A function that is asked after every step, with the number of steps done. It should be cheap.
        data_tag: See `Binding`.
        code_version: See `Binding`.
        resume: The bytes that an earlier run saved, from which to go on; None starts anew.
    """

    save: Callable[[bytes], None]
    is_due: Callable[[int], bool]
    data_tag: str
    code_version: str
    resume: bytes | None = None


def pack(binding: Binding, state: State) -> bytes:
    """Return the state as bytes.

    Args:
        state: Nested dictionaries of arrays, numbers, strings, booleans and None.
    """
    arrays: dict[str, npt.NDArray[Any]] = {}
    written = {"layout": _LAYOUT, "binding": _binding(binding), "state": _flatten(state, arrays)}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, text=np.array(json.dumps(written)), **arrays)
    return file.getvalue()


def unpack(binding: Binding, data: bytes) -> State:
    """Return the state that `pack` wrote, arrays on the host.

    Raises:
        InvalidValue: If these are not the bytes of a checkpoint, or the checkpoint belongs to something else.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        written = json.loads(str(arrays.pop("text")))
        layout, found, flat = written["layout"], written["binding"], written["state"]
        state: State = _restore(flat, arrays)
    except Exception:  # NumPy, zipfile and zlib each raise their own errors for bytes that are not theirs
        raise InvalidValue("these are not the bytes of a checkpoint", code="checkpoint_refused") from None
    if layout != _LAYOUT or found != _binding(binding):
        raise InvalidValue(
            "the checkpoint belongs to another plan, to other data or to another version", code="checkpoint_refused"
        )
    return state


def _binding(binding: Binding) -> dict[str, str]:
    return {name: getattr(binding, name) for name in Binding.__slots__}


def _flatten(value: Any, arrays: dict[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, Mapping):
        return {name: _flatten(item, arrays) for name, item in value.items()}
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (np.integer, np.floating)):
        return value.item()
    name = f"{_ARRAY}_{len(arrays)}"
    arrays[name] = to_host(value)
    return {_ARRAY: name}


def _restore(value: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> Any:
    if isinstance(value, dict):
        if set(value) == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {name: _restore(item, arrays) for name, item in value.items()}
    return value
