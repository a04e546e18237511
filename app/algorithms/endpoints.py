"""`/v1/calibrate` and `/v1/algorithms`: stateless; nothing is stored or charged."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body

from app.algorithms import service
from app.algorithms.examples import CALIBRATE_EXAMPLES
from app.algorithms.schemas import AlgorithmDetails, AlgorithmList, CalibrateAnswer, CalibrateRequest
from app.kit.context import CurrentContext
from app.problems import not_found
from calibrators.registry import ALGORITHMS

router = APIRouter(prefix="/v1", tags=["Calibration"])


@router.post("/calibrate", operation_id="calibrate", summary="Noise, step size and plan for a privacy target")
def calibrate(
    context: CurrentContext, request: Annotated[CalibrateRequest, Body(openapi_examples=CALIBRATE_EXAMPLES)]
) -> CalibrateAnswer:
    """The smallest noise multiplier whose certified epsilon meets the target, and what theory recommends beside it."""
    calibration = service.calibrate(context, request, request.dataset_size, request.dimension)
    return service.answer(calibration, request.target.delta)


@router.get("/algorithms", operation_id="list_algorithms", summary="The algorithms that calibrate and run")
def list_algorithms() -> AlgorithmList:
    """Every algorithm with its theorem, its assumptions and what is known to be wrong in its paper."""
    return AlgorithmList(items=[service.describe(algorithm) for algorithm in ALGORITHMS.values()])


@router.get("/algorithms/{name}", operation_id="get_algorithm", summary="One algorithm, with its input schema")
def get_algorithm(name: str) -> AlgorithmDetails:
    """The description of one algorithm and the JSON schema of its calibration request."""
    if name not in ALGORITHMS:
        raise not_found("algorithm", name)
    body = service.describe(ALGORITHMS[name])
    return AlgorithmDetails(**body.model_dump(), inputs=CalibrateRequest.model_json_schema())
