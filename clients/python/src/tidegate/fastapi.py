"""A dependency for FastAPI routes: `Depends(limit(client, …))`.

For a whole application use `tidegate.asgi.RateLimitMiddleware`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Sequence

import fastapi
from fastapi import HTTPException, Response, WebSocket
from fastapi.requests import HTTPConnection

from tidegate._decision import Decision
from tidegate._guard import Cost, DeniedBody, Guard, Keys, Refusal, joined
from tidegate.aio import Tidegate
from tidegate.asgi import App, AsgiRequest, Receive, Responding, Scope, Send, mark
from tidegate.keys import RequestInfo

_logger = logging.getLogger("tidegate")

#: Whether this FastAPI ends dependencies before the body of a response is sent.
_ENDS_EARLY = tuple(int(part) for part in fastapi.__version__.split(".")[:2]) < (0, 118)

#: Where `RateLimitHeaders` finds the headers of a response.
_HEADERS = "tidegate.headers"


class _FastApiRequest(AsgiRequest):
    """Keys of `keys.custom` get FastAPI's request."""

    def __init__(self, request: HTTPConnection) -> None:
        super().__init__(request.scope)
        self._request = request
        self._scope = request.scope
        self.native = request

    @property
    def peer(self) -> str | None:
        return self._request.client.host if self._request.client else None

    @property
    def method(self) -> str:
        return str(self._request.scope.get("method", "GET"))

    @property
    def path(self) -> str:
        return self._request.url.path

    def header(self, name: str) -> Sequence[str]:
        return self._request.headers.getlist(name)


class Refused(HTTPException):
    """A request that is refused: denied (429), without an answer (503), or without a usable key (400).

    Its response has the body and the headers of the rule. An exception handler for the status replaces it.
    """

    def __init__(self, refusal: Refusal) -> None:
        detail = refusal.body.decode("utf-8", "replace").rstrip("\n")
        super().__init__(refusal.status, detail, refusal.headers)
        self._refusal = refusal
        #: The body of the response.
        self.body = refusal.body
        #: The denial; None if the request was not decided.
        self.decision = refusal.decision

    def __reduce__(self) -> tuple[type[Refused], tuple[Refusal]]:
        return type(self), (self._refusal,)


class RateLimitHeaders:
    """Middleware that completes `limit`: `app.add_middleware(RateLimitHeaders)`.

    It adds the headers of `limit` to routes that return a `Response` of their own, where FastAPI adds none, and answers
    `RateLimited` of decorated functions with 429.
    """

    def __init__(self, app: App) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        scope[_HEADERS] = headers
        await Responding(scope, send, headers).run(self._app, receive)


def limit(
    client: Tidegate,
    keys: Keys,
    *,
    cost: Cost = 1,
    skip: Callable[[RequestInfo], bool] | None = None,
    legacy_headers: bool = False,
    denied_body: DeniedBody | None = None,
) -> Callable[[HTTPConnection, Response], AsyncIterator[Decision | None]]:
    """Return a dependency that limits a route, and injects the decision (None if the request is not limited).

    A denied request ends with 429, one without an answer under the policy `"closed"` with 503: see `Refused`. The
    decision is at `request.state.rate_limit`, too. A WebSocket is decided by its handshake. Slots are held until the
    response was sent, with FastAPI 0.118 or newer.
    """
    guard = Guard(keys, cost, skip, legacy_headers, denied_body)
    if _ENDS_EARLY:
        _logger.warning(
            "FastAPI %s ends dependencies before responses: slots of requests in flight end while a body is sent; "
            "update FastAPI to 0.118, or use tidegate.asgi.RateLimitMiddleware",
            fastapi.__version__,
        )

    async def rate_limit(request: HTTPConnection, response: Response) -> AsyncIterator[Decision | None]:
        slot = await guard.decide_async(client, _FastApiRequest(request))
        if isinstance(slot, Refusal):
            # Starlette's handlers for this connection: those of the application, by the class of the exception.
            handlers = request.scope.get("starlette.exception_handlers")
            if handlers is not None:
                handlers[0].setdefault(Refused, _respond)
            raise Refused(slot)
        if slot is None:
            yield None
            return
        decision = slot.decision
        async with slot:
            request.state.rate_limit = decision
            mark(request.scope, decision)
            # A dependency of the application comes before that of its route.
            headers = request.scope.get(_HEADERS, response.headers)
            headers.update(joined(headers.items(), guard.headers(decision)))
            yield decision

    return rate_limit


async def _respond(connection: HTTPConnection, refused: Refused) -> Response | None:
    response = Response(refused.body, refused.status_code, refused.headers)
    if not isinstance(connection, WebSocket):
        return response
    if "websocket.http.response" in connection.scope.get("extensions", {}):
        await connection.send_denial_response(response)
    else:
        # The server responds with 403.
        await connection.close(1008, "rate limited")
    return None
