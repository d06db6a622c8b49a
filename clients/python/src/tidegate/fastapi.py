"""A dependency for FastAPI routes: `Depends(limit(client, …))`.

For a whole application use `tidegate.asgi.RateLimitMiddleware`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from fastapi import HTTPException, Request, Response

from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._guard import Guard, Refusal
from tidegate.aio import Tidegate
from tidegate.asgi import AsgiRequest


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


def limit(
    client: Tidegate,
    keys: Sequence[_keys.Key],
    *,
    cost: int | Callable[[_keys.RequestInfo], int] = 1,
    legacy_headers: bool = False,
) -> Callable[[Request, Response], Awaitable[Decision | None]]:
    """Return a dependency that limits a route, and injects the decision (None if the request is not limited).

    A denied request ends with 429, one without an answer under the policy `"closed"` with 503.
    """
    guard = Guard(keys, cost, None, legacy_headers)

    async def rate_limit(request: Request, response: Response) -> Decision | None:
        descriptor = guard.descriptor(_FastApiRequest(request))
        if descriptor is None:
            return None
        if isinstance(descriptor, Refusal):
            raise _exception(descriptor)
        decision = await client.limit(descriptor)
        if refusal := guard.refusal(decision):
            raise _exception(refusal)
        response.headers.update(guard.headers(decision))
        return decision

    return rate_limit


def _exception(refusal: Refusal) -> HTTPException:
    # FastAPI writes the body of an exception as JSON, whatever the content type of the refusal.
    headers = {name: value for name, value in refusal.headers.items() if name.lower() != "content-type"}
    return HTTPException(refusal.status, refusal.body.decode("utf-8", "replace").rstrip("\n"), headers)
