"""Middleware for ASGI applications: Starlette, FastAPI, Litestar, Quart, Django's ASGI handler."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from typing import Any, TypeAlias

from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._engine import RateLimited
from tidegate._guard import Cost, Counts, DeniedBody, Guard, Keys, Refusal, beside, refusal_of
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
        """The HTTP method; of the handshake of a WebSocket GET."""
        return str(self.native.get("method", "GET"))

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
    """Limits the HTTP requests and the WebSockets of an ASGI application.

    The decision is at `scope["state"]["rate_limit"]` (Starlette, FastAPI: `request.state.rate_limit`). A WebSocket is
    decided by its handshake, and holds its slots until it is closed. Several of these middlewares, one inside of the
    other, list the limits of all of them in the headers. `RateLimited` of the application is a denial here, too.
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
        denied_body: DeniedBody | None = None,
        counts: Counts | None = None,
    ) -> None:
        """Wrap an application.

        `keys`: the entries of the descriptor, in order; for several descriptors a list of each one's.
        `cost`: hits of a request, or a function of it.
        `skip`: requests for which it returns true are not limited, such as health checks.
        `legacy_headers`: also send `X-RateLimit-…`.
        `denied_body`: returns the content type and the body of a denial.
        `counts`: returns whether a request counts, by the status of its response; the hits of others are given back at
        the end. For limits without `reserve`.
        """
        self._app = app
        self._client = client
        self._guard = Guard(keys, cost, skip, legacy_headers, denied_body, counts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection of the application."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        slot = await self._guard.decide_async(self._client, AsgiRequest(scope))
        if isinstance(slot, Refusal):
            await refuse(slot, scope, send)
            return
        if slot is None:
            await Responding(scope, send, {}).run(self._app, receive)
            return
        decision = slot.decision
        responding = Responding(scope, send, self._guard.headers(decision))
        try:
            scope.setdefault("state", {})["rate_limit"] = decision
            mark(scope, decision)
            await responding.run(self._app, receive)
        finally:
            await self._guard.end_async(self._client, slot, responding.status)


class Responding:
    """The response of an application, with the headers of a decision, which may be added until it starts."""

    def __init__(self, scope: Scope, send: Send, headers: dict[str, str]) -> None:
        self._scope = scope
        self._send = send
        self._headers = headers
        #: The status of the response; None until it starts.
        self.status: int | None = None

    async def run(self, app: App, receive: Receive) -> None:
        """Serve a connection; `RateLimited` that the application does not handle is a denial."""
        try:
            await app(self._scope, receive, self._send_with_headers)
        except RateLimited as limited:
            refusal = refusal_of(limited.decision)
            if self.status is not None or refusal is None:
                self._fail()
                raise
            await refuse(refusal, self._scope, self._send_with_headers)
        except Exception:
            self._fail()
            raise

    def _fail(self) -> None:
        """Note the status of the response to an exception, by the server or an outer handler of errors."""
        if self.status is None:
            self.status = 500

    async def _send_with_headers(self, message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept", "websocket.http.response.start"):
            self.status = message.get("status", 101)
            present = list(message.get("headers", ()))
            added = encoded(beside(decoded(present), self._headers).items())
            names = {name for name, _ in added}
            message["headers"] = [*(header for header in present if header[0].lower() not in names), *added]
        await self._send(message)


def mark(scope: Scope, decision: Decision) -> None:
    """Set the headers of a decision in the request, instead of the client's."""
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


async def refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    """Respond with a refusal instead of the application; a WebSocket is not accepted."""
    prefix = ""
    if scope["type"] == "websocket":
        if "websocket.http.response" not in scope.get("extensions", {}):
            # The server responds with 403.
            await send({"type": "websocket.close", "code": 1008, "reason": "rate limited"})
            return
        prefix = "websocket."
    headers = encoded(refusal.headers.items())
    headers.append((b"content-length", str(len(refusal.body)).encode()))
    await send({"type": f"{prefix}http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": f"{prefix}http.response.body", "body": refusal.body})


def decoded(headers: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[str, str]]:
    """Return headers of ASGI as text."""
    return ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)


def encoded(headers: Iterable[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    """Return headers as ASGI has them."""
    return [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
