"""Middleware apart from its framework: the descriptors of a request, and the response to a denied request."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from tidegate._decision import Decision, Reason
from tidegate._engine import RequestError
from tidegate._request import Descriptor
from tidegate._slot import AioSlot, Slot, unless_cancelled
from tidegate.keys import BadKeyError, Key, MissingKeyError, RequestInfo, entries_of

if TYPE_CHECKING:
    from tidegate._sync import Tidegate
    from tidegate.aio import Tidegate as AioTidegate

_logger = logging.getLogger("tidegate")

#: Keys of one descriptor, or of several.
Keys: TypeAlias = Sequence[Key] | Sequence[Sequence[Key]]
Cost: TypeAlias = int | Callable[[RequestInfo], int]

#: Returns the content type and the body of a denial.
DeniedBody: TypeAlias = Callable[[Decision, RequestInfo], tuple[str, bytes]]
#: Returns whether a request counts, by the status of its response.
Counts: TypeAlias = Callable[[int], bool]

#: Headers that list limits, so that those of several middlewares are joined.
_LISTS = ("ratelimit", "ratelimit-policy")


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
        denied_body: DeniedBody | None = None,
        counts: Counts | None = None,
    ) -> None:
        self._keys = _descriptors(keys)
        self._cost = cost
        self._skip = skip
        self._legacy = legacy_headers
        self._denied_body = denied_body
        self._counts = counts

    def decide(self, client: Tidegate, request: RequestInfo) -> Slot | Refusal | None:
        """Return the slot of an admitted request until its end, its refusal, or None if it is not limited."""
        descriptors = self._of(request)
        if descriptors is None or isinstance(descriptors, Refusal):
            return descriptors
        try:
            decision = client.limit(*descriptors)
        except RequestError:
            return _too_long()
        return self._refusal(decision, request) or Slot(
            decision, lambda *sent: client.limit(*sent, local_denials=False), descriptors
        )

    async def decide_async(self, client: AioTidegate, request: RequestInfo) -> AioSlot | Refusal | None:
        """Do what `decide` does, with the client of asyncio."""
        descriptors = self._of(request)
        if descriptors is None or isinstance(descriptors, Refusal):
            return descriptors

        async def decided() -> AioSlot:
            decision = await client.limit(*descriptors)
            return AioSlot(decision, lambda *sent: client.limit(*sent, local_denials=False), descriptors)

        try:
            slot = await unless_cancelled(decided())
        except RequestError:
            return _too_long()
        return self._refusal(slot.decision, request) or slot

    def end(self, client: Tidegate, slot: Slot, status: int | None) -> None:
        """End an admitted request with the status of its response; None if it has none."""
        slot.release()
        if self._is_given_back(slot.decision, status):
            try:
                client.give_back(*slot.descriptors)
            except Exception:
                _log_lost()

    async def end_async(self, client: AioTidegate, slot: AioSlot, status: int | None) -> None:
        """Do what `end` does, with the client of asyncio."""
        await slot.release()
        if self._is_given_back(slot.decision, status):
            try:
                await client.give_back(*slot.descriptors)
            except Exception:
                _log_lost()

    def has_end(self, decision: Decision) -> bool:
        """Return whether the end of a request has to be reported."""
        return decision.ticket is not None or self._counts is not None

    def _is_given_back(self, decision: Decision, status: int | None) -> bool:
        counts = self._counts
        # Without an answer nothing was taken.
        return counts is not None and status is not None and decision.error is None and not counts(status)

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

    def _refusal(self, decision: Decision, request: RequestInfo) -> Refusal | None:
        refusal = refusal_of(decision, legacy=self._legacy)
        if refusal is None or refusal.status != 429 or self._denied_body is None:
            return refusal
        content_type, body = self._denied_body(decision, request)
        headers = {name: value for name, value in refusal.headers.items() if name.lower() != "content-type"}
        return Refusal(429, headers | {"content-type": content_type}, body, decision)


def refusal_of(decision: Decision, *, legacy: bool = False) -> Refusal | None:
    """Return the response to a request that is denied; None if it is allowed."""
    if decision.allowed:
        return None
    if decision.reason is Reason.FAILED_CLOSED and not decision.statuses:
        return Refusal(503, {"content-type": "text/plain"}, b"Service Unavailable\n", decision)
    headers = decision.headers(legacy=legacy)
    if all(name.lower() != "content-type" for name in headers):
        headers["content-type"] = "text/plain"
    return Refusal(429, headers, decision.body or b"Too Many Requests\n", decision)


def joined(outer: Iterable[tuple[str, str]], added: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to set beside those of an outer middleware in a response: lists name the limits of both."""
    present = {name.lower(): value for name, value in outer}
    return {
        name: f"{present[name.lower()]}, {value}" if name.lower() in _LISTS and name.lower() in present else value
        for name, value in added.items()
    }


def beside(present: Iterable[tuple[str, str]], added: Mapping[str, str]) -> dict[str, str]:
    """Return the headers to set in a response that may have those of another, inner middleware.

    Lists name the limits of both, those of the outer one first; of other headers the inner ones stay.
    """
    inner: dict[str, str] = {}
    for name, value in present:
        lower = name.lower()
        inner[lower] = f"{inner[lower]}, {value}" if lower in inner else value
    headers = {}
    for name, value in added.items():
        lower = name.lower()
        if lower not in inner:
            headers[name] = value
        elif lower in _LISTS:
            headers[name] = f"{value}, {inner[lower]}"
    return headers


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


def _too_long() -> Refusal:
    return _bad_request("a key of the request is too long or malformed")


def _log_lost() -> None:
    _logger.warning("hits of a request that does not count are not given back", exc_info=True)


def _bad_request(message: str) -> Refusal:
    return Refusal(400, {"content-type": "text/plain"}, f"{message}\n".encode("utf-8", "replace"))
