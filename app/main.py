"""The application factory: every route, middleware and error handler of the service, put together in one place."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anyio.to_thread import current_default_thread_limiter
from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from app import VERSION
from app.algorithms import endpoints as algorithms
from app.audits import endpoints as audits
from app.auth import endpoints as keys
from app.auth.guard import Guard
from app.auth.throttle import Throttle
from app.budgets import endpoints as budgets
from app.budgets import spending_endpoints as spending
from app.context import Context
from app.dashboard.routes import add_dashboard
from app.datasets import endpoints as datasets
from app.deployments import endpoints as deployments
from app.fence.watching import fence_of
from app.kit.answer_cache import AnswerCache
from app.kit.known_answers import KnownAnswers
from app.ledger import endpoints as ledger
from app.ledger import transparency_endpoints as transparency
from app.ledger.cosigning import Cosigner
from app.ledger.witnesses import witnesses_of
from app.limit_requests import endpoints as limit_requests
from app.monitoring import health, metrics_endpoint
from app.monitoring.collectors import state_registry
from app.observability.requests import RequestBoundary
from app.privacy import endpoints as privacy
from app.problem_handlers import add_problem_handlers
from app.reservations import endpoints as reservations
from app.run_sweeps import endpoints as run_sweeps
from app.runs import endpoints as runs
from app.runs import progress_endpoints as run_progress
from app.runs.progress import ProgressFeed
from app.runs.supervisor import Supervisor
from app.sweeps import endpoints as sweeps
from app.web.body_gate import BodyGate
from app.web.docs import add_documentation
from app.web.fence_gate import FenceGate
from app.web.forwarding import Forwarding
from app.webhooks import endpoints as webhooks
from app.webhooks.delivery import Deliverer

#: The routers of the resources, in the order of the documentation. A new one is imported above and named here.
RESOURCES = (
    privacy,
    algorithms,
    sweeps,
    reservations,
    budgets,
    spending,
    limit_requests,
    deployments,
    webhooks,
    ledger,
    transparency,
    datasets,
    runs,
    run_progress,
    run_sweeps,
    audits,
    keys,
    health,
    metrics_endpoint,
)


def operation_id(route: APIRoute) -> str:
    """Return the name of the endpoint's function. It is stable and readable, and a test verifies that it is unique."""
    return route.name


#: The routes are resolved once per process, since they are the same in every application; including routers would
#: resolve them again.
ROUTES = APIRouter(generate_unique_id_function=operation_id)
for resource in RESOURCES:
    ROUTES.include_router(resource.router)


def create_app(context: Context) -> FastAPI:
    """Create the service over ``context``. It reads nothing from the environment and keeps nothing in globals."""
    progress = ProgressFeed(context)
    answers = AnswerCache(context.settings.cache_entries, context.settings.cache_bytes)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # A request that waits for numerics holds a thread. These threads are added to the pool, so that other requests
        # have as many as before.
        current_default_thread_limiter().total_tokens += context.threads_of_numerics
        app.state.began = time.monotonic()
        await run_in_threadpool(fence_of(context).look)
        # The supervisor runs even on a server without workers: if a worker on another machine has gone silent,
        # the supervisor takes its run away.
        supervisor = Supervisor(context, context.settings.workers)
        await run_in_threadpool(supervisor.start)
        progress.open()
        cosigner = Cosigner(context)
        if witnesses_of(context.settings).members:
            cosigner.start()
        deliverer = Deliverer(context)
        if context.settings.webhook_addresses:
            deliverer.start()
        try:
            yield
        finally:
            progress.close()
            deliverer.stop()
            cosigner.stop()
            await run_in_threadpool(context.processes.close)
            await run_in_threadpool(context.audit_processes.close)
            await run_in_threadpool(supervisor.stop)

    app = FastAPI(
        title="epsilond",
        version=VERSION,
        routes=ROUTES.routes,
        lifespan=lifespan,
        # The document is served from a file (`app.web.docs`).
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=operation_id,
        # The framework's telemetry would record the messages of exceptions, which quote values.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.context = context
    app.state.progress = progress
    app.state.answers = answers
    app.state.metrics = state_registry(context, answers)
    app.state.last_look = health.LastLook()
    # The middleware that is added last is the outermost. A request passes the boundary, the headers of proxies, the
    # guard, the limits of its key, the fence, the cache of known answers and the gate of bodies.
    app.add_middleware(BodyGate, context=context)
    app.add_middleware(KnownAnswers, answers=answers)
    app.add_middleware(FenceGate, context=context)
    app.add_middleware(Throttle, context=context)
    app.add_middleware(Guard, context=context)
    app.add_middleware(Forwarding, settings=context.settings)
    app.add_middleware(RequestBoundary, metrics=context.metrics, believed=context.settings.tracing_networks)
    add_problem_handlers(app)
    add_documentation(app)
    add_dashboard(app)
    return app
