"""A dependency for FastAPI routes: `Depends(limit(client, …))`.

For a whole application use `tidegate.asgi.RateLimitMiddleware`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence

from fastapi import HTTPException, Request, Response

from tidegate._decision import Decision
from tidegate._guard import Cost, Guard, Keys, Refusal
from tidegate.aio import Tidegate
from tidegate.asgi import App, AsgiRequest, Message, Receive, Scope, Send, encoded, mark

#: Where `RateLimitHeaders` finds the headers of a response.
_HEADERS = "tidegate.headers"


class _FastApiRequest(AsgiRequest):
    """Keys of `keys.custom` get FastAPI's request."""

    def __init__(self, request: Request) -> None:
        super().__init__(request.scope)
        self._request = request
        self._scope = request.scope
        self.native = request

    @property
    def peer(self) -> str | None:
        return self._request.client.host if self._request.client else None

    @property
    def method(self) -> str:
        return self._request.method

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
        #: The body of the response.
        self.body = refusal.body
        #: The denial; None if the request was not decided.
        self.decision = refusal.decision


class RateLimitHeaders:
    """Middleware that adds the headers of `limit` to routes that return a `Response` of their own.

    FastAPI adds the headers of dependencies to other routes only: `app.add_middleware(RateLimitHeaders)`.
    """

    def __init__(self, app: App) -> None:
        """Wrap an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[str, str] = {}
        scope[_HEADERS] = headers

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and headers:
                message["headers"] = [*message.get("headers", ()), *encoded(headers.items())]
            await send(message)

        await self._app(scope, receive, send_with_headers)


def limit(
    client: Tidegate,
    keys: Keys,
    *,
    cost: Cost = 1,
    legacy_headers: bool = False,
) -> Callable[[Request, Response], AsyncIterator[Decision | None]]:
    """Return a dependency that limits a route, and injects the decision (None if the request is not limited).

    A denied request ends with 429, one without an answer under the policy `"closed"` with 503: see `Refused`. The
    decision is at `request.state.rate_limit`, too.
    """
    guard = Guard(keys, cost, None, legacy_headers)

    async def rate_limit(request: Request, response: Response) -> AsyncIterator[Decision | None]:
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
        request.state.rate_limit = decision
        mark(request.scope, decision)
        request.scope.get(_HEADERS, response.headers).update(guard.headers(decision))
        async with slot:
            yield decision

    return rate_limit


async def _respond(_: Request, refused: Refused) -> Response:
    return Response(refused.body, refused.status_code, refused.headers)
