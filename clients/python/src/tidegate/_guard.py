"""Middleware without its framework: the descriptors of a request, and the response to a denied one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidegate._decision import Decision, Reason
from tidegate._engine import RequestError
from tidegate._request import Descriptor
from tidegate._slot import AioSlot, Slot
from tidegate.keys import BadKeyError, Key, MissingKeyError, RequestInfo, entries_of

if TYPE_CHECKING:
    from tidegate._sync import Tidegate
    from tidegate.aio import Tidegate as AioTidegate

#: Keys of one descriptor, or of several.
Keys: TypeAlias = Sequence[Key] | Sequence[Sequence[Key]]
Cost: TypeAlias = int | Callable[[RequestInfo], int]

#: Refusals of the request's own values, of which the caller of the application is the cause.
_OF_CLIENT = ("INVALID_ARGUMENT", "OUT_OF_RANGE")


@dataclass(frozen=True)
class Refusal:
    """A response instead of the application's."""

    status: int
    headers: dict[str, str]
    body: bytes
    #: The denial, if the request was decided.
    decision: Decision | None = None


class Guard:
    """Settings that all middleware shares."""

    def __init__(
        self,
        keys: Keys,
        cost: Cost,
        skip: Callable[[RequestInfo], bool] | None,
        legacy_headers: bool,
    ) -> None:
        self._keys = _descriptors(keys)
        self._cost = cost
        self._skip = skip
        self._legacy = legacy_headers

    def decide(self, client: Tidegate, request: RequestInfo) -> Slot | Refusal | None:
        """Return what an admitted request holds until its end, its refusal, or None if it is not limited."""
        descriptors = self._of(request)
        if descriptors is None or isinstance(descriptors, Refusal):
            return descriptors
        try:
            decision = client.limit(*descriptors)
        except RequestError as error:
            return _refused(error)
        return self._refusal(decision) or Slot(
            decision, lambda *sent: client.limit(*sent, local_denials=False), descriptors
        )

    async def decide_async(self, client: AioTidegate, request: RequestInfo) -> AioSlot | Refusal | None:
        """Do what `decide` does, with the client of asyncio."""
        descriptors = self._of(request)
        if descriptors is None or isinstance(descriptors, Refusal):
            return descriptors
        try:
            decision = await client.limit(*descriptors)
        except RequestError as error:
            return _refused(error)
        return self._refusal(decision) or AioSlot(
            decision, lambda *sent: client.limit(*sent, local_denials=False), descriptors
        )

    def headers(self, decision: Decision) -> dict[str, str]:
        """Return the headers that a response gets."""
        return decision.headers(legacy=self._legacy)

    def _of(self, request: RequestInfo) -> list[Descriptor] | Refusal | None:
        if self._skip is not None and self._skip(request):
            return None
        try:
            read = [entries_of(keys, request) for keys in self._keys]
        except (MissingKeyError, BadKeyError) as error:
            return _bad_request(str(error))
        entries = [one for one in read if one is not None]
        if not entries:
            return None
        cost = self._cost if isinstance(self._cost, int) else self._cost(request)
        return [Descriptor(one, cost=cost) for one in entries]

    def _refusal(self, decision: Decision) -> Refusal | None:
        if decision.allowed:
            return None
        if decision.reason is Reason.FAILED_CLOSED:
            return Refusal(503, {"content-type": "text/plain"}, b"Service Unavailable\n", decision)
        headers = self.headers(decision)
        if all(name.lower() != "content-type" for name in headers):
            headers["content-type"] = "text/plain"
        return Refusal(429, headers, decision.body or b"Too Many Requests\n", decision)


def environ_of(decision: Decision) -> dict[str, str]:
    """Return the headers of a decision as variables of WSGI, which replace those of the client."""
    variables: dict[str, str] = {}
    for name, value in decision.request_headers:
        variable = "HTTP_" + name.upper().replace("-", "_")
        variables[variable] = f"{variables[variable]},{value}" if variable in variables else value
    return variables


def _descriptors(keys: Keys) -> tuple[tuple[Key, ...], ...]:
    lists: list[tuple[Key, ...]] = []
    single: list[Key] = []
    for one in keys:
        if isinstance(one, Key):
            single.append(one)
        else:
            lists.append(tuple(one))
    if single and lists:
        raise ValueError("keys has keys and lists of keys; use a list for each descriptor")
    if single:
        lists = [tuple(single)]
    if not lists or not all(lists):
        raise ValueError("keys is empty; name at least one, such as keys.constant('route', 'all')")
    return tuple(lists)


def _refused(error: RequestError) -> Refusal:
    if error.code not in _OF_CLIENT:
        raise error
    return _bad_request("a key of the request is too long or malformed")


def _bad_request(message: str) -> Refusal:
    return Refusal(400, {"content-type": "text/plain"}, f"{message}\n".encode("utf-8", "replace"))
