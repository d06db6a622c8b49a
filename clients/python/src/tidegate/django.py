"""Middleware for Django, under WSGI and ASGI.

```python
# settings.py
MIDDLEWARE = ["tidegate.django.RateLimitMiddleware", …]
TIDEGATE = {
    "client": Tidegate("127.0.0.1:8081", domain="shop"),
    "keys": [keys.header("x-api-key", entry="api_key", missing="reject")],
}
```

Further settings: `cost`, `skip`, `legacy_headers`, as in `tidegate.asgi.RateLimitMiddleware`. The decision is at
`request.rate_limit`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase

from tidegate import Tidegate
from tidegate._guard import Guard, Refusal

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

    def header(self, name: str) -> Sequence[str]:
        """Return the value of a header; servers join repeated ones."""
        value = self.native.headers.get(name)
        return [] if value is None else [str(value)]


class RateLimitMiddleware:
    """Limits the requests of a Django project."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        """Read the setting `TIDEGATE`."""
        self._get_response = get_response
        options: dict[str, Any] = dict(getattr(settings, "TIDEGATE", {}))
        if unknown := options.keys() - _SETTINGS:
            raise ValueError(f"TIDEGATE has unknown settings: {', '.join(sorted(unknown))}")
        client = options.get("client")
        if not isinstance(client, Tidegate):
            raise TypeError("TIDEGATE['client'] is no tidegate.Tidegate")
        self._client = client
        self._guard = Guard(
            options.get("keys", ()),
            options.get("cost", 1),
            options.get("skip"),
            options.get("legacy_headers", False),
        )

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Serve one request."""
        descriptor = self._guard.descriptor(DjangoRequest(request))
        if descriptor is None:
            return self._get_response(request)
        if isinstance(descriptor, Refusal):
            return _response(descriptor)
        decision = self._client.limit(descriptor)
        if refusal := self._guard.refusal(decision):
            return _response(refusal)
        request.rate_limit = decision  # type: ignore[attr-defined]
        for name, value in decision.request_headers:
            request.META[_keys_of_wsgi(name)] = value
        response = self._get_response(request)
        for name, value in self._guard.headers(decision).items():
            response[name] = value
        return response


def _response(refusal: Refusal) -> HttpResponse:
    return HttpResponse(refusal.body, status=refusal.status, headers=refusal.headers)


def _keys_of_wsgi(name: str) -> str:
    return "HTTP_" + name.upper().replace("-", "_")
