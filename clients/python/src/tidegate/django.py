"""Middleware for Django, under WSGI and ASGI.

```python
# settings.py
MIDDLEWARE = ["tidegate.django.RateLimitMiddleware", …]
TIDEGATE = {
    "client": Tidegate("127.0.0.1:8081", domain="shop"),
    "keys": [keys.header("x-api-key", entry="api_key", missing="reject")],
}
```

The client is `tidegate.Tidegate`, or under ASGI rather `tidegate.aio.Tidegate`. Further settings: `cost`, `skip`,
`legacy_headers`, as in `tidegate.asgi.RateLimitMiddleware`. The decision is at `request.rate_limit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from tidegate import Tidegate, aio
from tidegate._decision import Decision
from tidegate._guard import Guard, Refusal, environ_of
from tidegate._slot import Slot

_SETTINGS: Final = {"client", "keys", "cost", "skip", "legacy_headers"}


class DjangoRequest:
    """The parts of a Django request that keys read."""

    def __init__(self, request: HttpRequest) -> None:
        #: The request.
        self.native: Any = request

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection."""
        return self.native.META.get("REMOTE_ADDR") or None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.native.method)

    @property
    def path(self) -> str:
        """The path."""
        return str(self.native.path)

    #: Django and WSGI servers do.
    joins_headers = True

    def header(self, name: str) -> Sequence[str]:
        """Return the value of a header; servers join repeated ones."""
        value = self.native.headers.get(name)
        return [] if value is None else [str(value)]


class RateLimitMiddleware:
    """Limits the requests of a Django project. Under ASGI it is asynchronous if the client is that of asyncio."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Read the setting `TIDEGATE`."""
        self._get_response = get_response
        options: dict[str, Any] = dict(getattr(settings, "TIDEGATE", {}))
        if unknown := options.keys() - _SETTINGS:
            raise ValueError(f"TIDEGATE has unknown settings: {', '.join(sorted(unknown))}")
        client = options.get("client")
        if not isinstance(client, (Tidegate, aio.Tidegate)):
            raise TypeError("TIDEGATE['client'] is no tidegate.Tidegate and no tidegate.aio.Tidegate")
        self._client = client
        self._guard = Guard(
            options.get("keys", ()),
            options.get("cost", 1),
            options.get("skip"),
            options.get("legacy_headers", False),
        )
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            # Django awaits what it takes for a coroutine function.
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Serve one request: the response, or under ASGI an awaitable of it."""
        if self._is_async:
            return self._serve_async(request)
        client = self._client
        outcome = (
            self._guard.decide(client, DjangoRequest(request))
            if isinstance(client, Tidegate)
            else async_to_sync(self._guard.decide_async)(client, DjangoRequest(request))
        )
        if isinstance(outcome, Refusal):
            return _response(outcome)
        if outcome is None:
            return self._get_response(request)
        release = outcome.release if isinstance(outcome, Slot) else async_to_sync(outcome.release)
        self._prepare(request, outcome.decision)
        try:
            response = self._get_response(request)
        except BaseException:
            release()
            raise
        return self._complete(response, outcome.decision, release)

    async def _serve_async(self, request: HttpRequest) -> HttpResponseBase:
        client = self._client
        outcome = (
            await sync_to_async(self._guard.decide, thread_sensitive=False)(client, DjangoRequest(request))
            if isinstance(client, Tidegate)
            else await self._guard.decide_async(client, DjangoRequest(request))
        )
        if isinstance(outcome, Refusal):
            return _response(outcome)
        if outcome is None:
            return cast("HttpResponseBase", await self._get_response(request))
        self._prepare(request, outcome.decision)
        try:
            response = await self._get_response(request)
        except BaseException:
            # Also of a request that is cancelled because its client has gone.
            if isinstance(outcome, Slot):
                await asyncio.shield(sync_to_async(outcome.release, thread_sensitive=False)())
            else:
                await outcome.release()
            raise
        # Django closes responses in threads.
        release = outcome.release if isinstance(outcome, Slot) else async_to_sync(outcome.release)
        return self._complete(response, outcome.decision, release)

    def _prepare(self, request: HttpRequest, decision: Decision) -> None:
        request.rate_limit = decision  # type: ignore[attr-defined]
        if marks := environ_of(decision):
            request.META.update(marks)
            # Read before by a key, and cached by Django.
            request.__dict__.pop("headers", None)

    def _complete(
        self, response: HttpResponseBase, decision: Decision, release: Callable[[], None]
    ) -> HttpResponseBase:
        for name, value in self._guard.headers(decision).items():
            response[name] = value
        if decision.ticket is not None:
            _at_close(response, release)
        return response


def _at_close(response: HttpResponseBase, release: Callable[[], None]) -> None:
    """Release slots when the response was sent, or its client has gone."""
    close = response.close

    def closing() -> None:
        try:
            close()
        finally:
            release()

    response.close = closing  # type: ignore[method-assign]


def _response(refusal: Refusal) -> HttpResponse:
    return HttpResponse(refusal.body, status=refusal.status, headers=refusal.headers)
