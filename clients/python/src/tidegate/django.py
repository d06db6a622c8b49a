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
`legacy_headers`, `denied_body`, `counts`, as in `tidegate.asgi.RateLimitMiddleware`. The decision is at
`request.rate_limit`. `limit` decorates single views. `RateLimited` of decorated functions is answered with 429.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

from asgiref.sync import async_to_sync, iscoroutinefunction, markcoroutinefunction, sync_to_async
from django.conf import settings
from django.core.exceptions import BadRequest, PermissionDenied, SuspiciousOperation
from django.http import Http404, HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.http.response import HttpResponseBase

from tidegate import Tidegate, aio
from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._ends import when_over
from tidegate._engine import RateLimited
from tidegate._guard import Cost, Counts, DeniedBody, Guard, Keys, Refusal, beside, environ_of, refusal_of
from tidegate._slot import AioSlot, Slot

#: The errors that Django answers with a status other than 500.
_STATUSES: Final = (
    (Http404, 404),
    (PermissionDenied, 403),
    ((BadRequest, MultiPartParserError, SuspiciousOperation), 400),
)

_SETTINGS: Final = {"client", "keys", "cost", "skip", "legacy_headers", "denied_body", "counts"}


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

    #: Django and WSGI servers join them.
    joins_headers = True

    def header(self, name: str) -> Sequence[str]:
        """Return the value of a header; servers join repeated headers."""
        value = self.native.headers.get(name)
        return [] if value is None else [str(value)]


AnyTidegate: TypeAlias = Tidegate | aio.Tidegate


class RateLimitMiddleware:
    """Limits the requests of a Django project. Under ASGI it is asynchronous if the client is that of asyncio."""

    sync_capable = True
    async_capable = True

    def __init__(self, get_response: Callable[[HttpRequest], Any]) -> None:
        """Read the setting `TIDEGATE`."""
        options: dict[str, Any] = dict(getattr(settings, "TIDEGATE", {}))
        if unknown := options.keys() - _SETTINGS:
            raise ValueError(f"TIDEGATE has unknown settings: {', '.join(sorted(unknown))}")
        client = options.get("client")
        if not isinstance(client, (Tidegate, aio.Tidegate)):
            raise TypeError("TIDEGATE['client'] is no tidegate.Tidegate and no tidegate.aio.Tidegate")
        guard = Guard(
            options.get("keys", ()),
            options.get("cost", 1),
            options.get("skip"),
            options.get("legacy_headers", False),
            options.get("denied_body"),
            options.get("counts"),
        )
        self._limited = _Limited(client, guard)
        self._get_response = get_response
        self._is_async = iscoroutinefunction(get_response)
        if self._is_async:
            # Django awaits the result of a callable that it takes for a coroutine function.
            markcoroutinefunction(self)

    def __call__(self, request: HttpRequest) -> Any:
        """Serve one request: the response, or under ASGI an awaitable of it."""
        serve = self._limited.serve_async if self._is_async else self._limited.serve
        return serve(request, self._get_response)

    def process_exception(self, _: HttpRequest, exception: Exception) -> HttpResponse | None:
        """Answer a call that a decorator denies, and that the view does not handle."""
        refusal = refusal_of(exception.decision) if isinstance(exception, RateLimited) else None
        return None if refusal is None else _response(refusal)


def limit(
    client: AnyTidegate,
    keys: Keys,
    *,
    cost: Cost = 1,
    skip: Callable[[_keys.RequestInfo], bool] | None = None,
    legacy_headers: bool = False,
    denied_body: DeniedBody | None = None,
    counts: Counts | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that limits a view, also an asynchronous one, beside the middleware if that limits too.

    Its options are those of `tidegate.asgi.RateLimitMiddleware`. Methods of classes take it by Django's
    `method_decorator`.
    """
    limited = _Limited(client, Guard(keys, cost, skip, legacy_headers, denied_body, counts))

    def decorate(view: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(view)
        def serve(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            return limited.serve(request, lambda admitted: view(admitted, *args, **kwargs))

        @functools.wraps(view)
        async def serve_async(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            return await limited.serve_async(request, lambda admitted: view(admitted, *args, **kwargs))

        return serve_async if iscoroutinefunction(view) else serve

    return decorate


class _Limited:
    """Serves requests within limits, with either client, synchronously and asynchronously."""

    def __init__(self, client: AnyTidegate, guard: Guard) -> None:
        self._client = client
        self._guard = guard

    def serve(self, request: HttpRequest, get_response: Callable[[HttpRequest], Any]) -> HttpResponseBase:
        client = self._client
        outcome = (
            self._guard.decide(client, DjangoRequest(request))
            if isinstance(client, Tidegate)
            else async_to_sync(self._guard.decide_async)(client, DjangoRequest(request))
        )
        if isinstance(outcome, Refusal):
            return _response(outcome)
        if outcome is None:
            return cast("HttpResponseBase", get_response(request))
        try:
            _prepare(request, outcome.decision)
            return self._complete(get_response(request), outcome)
        except BaseException as error:
            self._end(outcome, _status_of(error))
            raise

    async def serve_async(self, request: HttpRequest, get_response: Callable[[HttpRequest], Any]) -> HttpResponseBase:
        client = self._client
        outcome: Slot | AioSlot | Refusal | None
        if isinstance(client, Tidegate):
            outcome = await _in_thread(functools.partial(self._guard.decide, client, DjangoRequest(request)), self._end)
        else:
            outcome = await self._guard.decide_async(client, DjangoRequest(request))
        if isinstance(outcome, Refusal):
            return _response(outcome)
        if outcome is None:
            return cast("HttpResponseBase", await get_response(request))
        try:
            _prepare(request, outcome.decision)
            return self._complete(await get_response(request), outcome)
        except BaseException as error:
            # Even if the request is cancelled because its client has left.
            await asyncio.shield(sync_to_async(self._end, thread_sensitive=False)(outcome, _status_of(error)))
            raise

    def _end(self, slot: Slot | AioSlot, status: int | None) -> None:
        client = self._client
        if isinstance(slot, Slot):
            self._guard.end(cast("Tidegate", client), slot, status)
        else:
            async_to_sync(self._guard.end_async)(cast("aio.Tidegate", client), slot, status)

    def _complete(self, response: HttpResponseBase, slot: Slot | AioSlot) -> HttpResponseBase:
        for name, value in beside(response.items(), self._guard.headers(slot.decision)).items():
            response[name] = value
        if self._guard.has_end(slot.decision):
            # Django closes responses in threads, after they were sent or their client has left.
            _at_close(response, functools.partial(self._end, slot, response.status_code))
        return response


async def _in_thread(
    decide: Callable[[], Slot | Refusal | None], end: Callable[[Slot | AioSlot, int | None], None]
) -> Slot | Refusal | None:
    """Decide in a thread; a task that is cancelled before it has the outcome keeps no slot."""
    held: list[Slot] = []
    # Acquired by the thread with a slot or by the cancelled task, never released: the second of them ends the slot.
    first = threading.Lock()

    def decided() -> Slot | Refusal | None:
        outcome = decide()
        if isinstance(outcome, Slot):
            held.append(outcome)
            if not first.acquire(blocking=False):
                end(outcome, None)
        return outcome

    deciding = asyncio.ensure_future(sync_to_async(decided, thread_sensitive=False)())
    try:
        return await asyncio.shield(deciding)
    except asyncio.CancelledError:
        if not first.acquire(blocking=False):
            asyncio.get_running_loop().run_in_executor(None, end, held[0], None)
        raise


def _prepare(request: HttpRequest, decision: Decision) -> None:
    request.rate_limit = decision  # type: ignore[attr-defined]
    if marks := environ_of(decision):
        request.META.update(marks)
        # A key has read it before, and Django has cached it.
        request.__dict__.pop("headers", None)


def _at_close(response: HttpResponseBase, end: Callable[[], None]) -> None:
    closed = when_over(response, end)
    # A response with a reference to itself would stay until the garbage collector finds it.
    before: Callable[[], None] | None = response.__dict__.get("close")
    itself = weakref.ref(response)

    def closing() -> None:
        try:
            if before is not None:
                before()
            elif (closes := itself()) is not None:
                type(closes).close(closes)
        finally:
            closed()

    response.close = closing  # type: ignore[method-assign]


def _status_of(error: BaseException) -> int | None:
    """Return the status of Django's response to an error of a view; None if there is no response."""
    if isinstance(error, RateLimited):
        refusal = refusal_of(error.decision)
        return 500 if refusal is None else refusal.status
    if not isinstance(error, Exception):
        return None
    return next((status for kinds, status in _STATUSES if isinstance(error, kinds)), 500)


def _response(refusal: Refusal) -> HttpResponse:
    return HttpResponse(refusal.body, status=refusal.status, headers=refusal.headers)
