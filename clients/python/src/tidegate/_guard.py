"""Middleware without its framework: the descriptor of a request, and the response to a denied one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidegate._decision import Decision, Reason
from tidegate._request import Descriptor
from tidegate.keys import Key, MissingKeyError, RequestInfo, entries_of


@dataclass(frozen=True)
class Refusal:
    """A response instead of the application's."""

    status: int
    headers: dict[str, str]
    body: bytes


class Guard:
    """Settings that all middleware shares."""

    def __init__(
        self,
        keys: Sequence[Key],
        cost: int | Callable[[RequestInfo], int],
        skip: Callable[[RequestInfo], bool] | None,
        legacy_headers: bool,
    ) -> None:
        if not keys:
            raise ValueError("keys is empty; name at least one, such as keys.constant('route', 'all')")
        self._keys = tuple(keys)
        self._cost = cost
        self._skip = skip
        self._legacy = legacy_headers

    def descriptor(self, request: RequestInfo) -> Descriptor | Refusal | None:
        """Return the descriptor of a request, its refusal, or None if it is not limited."""
        if self._skip is not None and self._skip(request):
            return None
        try:
            entries = entries_of(self._keys, request)
        except MissingKeyError as error:
            return Refusal(400, {"content-type": "text/plain"}, f"{error}\n".encode())
        if entries is None:
            return None
        return Descriptor(entries, cost=self._cost if isinstance(self._cost, int) else self._cost(request))

    def headers(self, decision: Decision) -> dict[str, str]:
        """Return the headers that a response gets."""
        return decision.headers(legacy=self._legacy)

    def refusal(self, decision: Decision) -> Refusal | None:
        """Return the response to a denied request."""
        if decision.allowed:
            return None
        if decision.reason is Reason.FAILED_CLOSED:
            return Refusal(503, {"content-type": "text/plain"}, b"Service Unavailable\n")
        headers = self.headers(decision)
        if all(name.lower() != "content-type" for name in headers):
            headers["content-type"] = "text/plain"
        return Refusal(429, headers, decision.body or b"Too Many Requests\n")
