"""Middleware for ASGI applications: Starlette, FastAPI, Litestar, Quart, Django's ASGI handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias

from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._guard import Cost, Guard, Keys, Refusal
from tidegate.aio import Tidegate

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiRequest:
    """The parts of an ASGI scope that keys read."""

    def __init__(self, scope: Scope) -> None:
        #: The scope.
        self.native: Any = scope

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection."""
        client = self.native.get("client")
        return None if not client else str(client[0])

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.native["method"])

    @property
    def path(self) -> str:
        """The path."""
        return str(self.native["path"])

    joins_headers = False

    def header(self, name: str) -> Sequence[str]:
        """Return all values of a header, in order."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for key, value in self.native["headers"] if key.lower() == wanted]


class RateLimitMiddleware:
    """Limits the HTTP requests of an ASGI application.

    The decision is at `scope["state"]["rate_limit"]` (Starlette, FastAPI: `request.state.rate_limit`).
    """

    def __init__(
        self,
        app: App,
        *,
        client: Tidegate,
        keys: Keys,
        cost: Cost = 1,
        skip: Callable[[_keys.RequestInfo], bool] | None = None,
        legacy_headers: bool = False,
    ) -> None:
        """Wrap an application.

        `keys`: the entries of the descriptor, in order; for several descriptors a list of each one's.
        `cost`: hits of a request, or a function of it.
        `skip`: requests for which it returns true are not limited, such as health checks.
        `legacy_headers`: also send `X-RateLimit-…`.
        """
        self._app = app
        self._client = client
        self._guard = Guard(keys, cost, skip, legacy_headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        slot = await self._guard.decide_async(self._client, AsgiRequest(scope))
        if slot is None:
            await self._app(scope, receive, send)
            return
        if isinstance(slot, Refusal):
            await _refuse(slot, send)
            return
        decision = slot.decision
        scope.setdefault("state", {})["rate_limit"] = decision
        mark(scope, decision)
        added = encoded(self._guard.headers(decision).items())

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and added:
                message["headers"] = [*message.get("headers", ()), *added]
            await send(message)

        async with slot:
            await self._app(scope, receive, send_with_headers)


def mark(scope: Scope, decision: Decision) -> None:
    """Set the headers of a decision in the request, instead of those of the client."""
    if not decision.request_headers:
        return
    marks = encoded(decision.request_headers)
    names = {name for name, _ in marks}
    kept = [(name, value) for name, value in scope["headers"] if name.lower() not in names]
    if isinstance(scope["headers"], list):
        # Starlette's requests have a reference to this list.
        scope["headers"][:] = kept + marks
    else:
        scope["headers"] = kept + marks


async def _refuse(refusal: Refusal, send: Send) -> None:
    headers = encoded(refusal.headers.items())
    headers.append((b"content-length", str(len(refusal.body)).encode()))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": refusal.body})


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI has them."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
