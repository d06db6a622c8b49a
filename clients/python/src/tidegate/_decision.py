"""Decisions: values that hold the answer for one request."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.duration_pb2 import Duration

from tidegate._limit import Limit, policy, quoted
from tidegate._proto import rls_pb2 as pb

_NANOS: Final = 1_000_000_000
#: The least number of a header that is a Unix time (`--response-headers x-unix`), of 2001. As a wait it would be
#: 31 years.
_UNIX_MIN: Final = 1_000_000_000
#: The parameter of `RateLimit` with the seconds until a reset.
_SECONDS_LEFT: Final = re.compile(r";t=(\d+)")

_LIMIT_UNITS: Final = {
    number: "" if name == "UNKNOWN" else name.lower() for name, number in pb.RateLimitResponse.RateLimit.Unit.items()
}
_OVER_LIMIT: Final = pb.RateLimitResponse.OVER_LIMIT
_MODES: Final = {pb.RateLimitResponse.QUOTA: "quota", pb.RateLimitResponse.QUEUED: "queued"}


class Reason(str, Enum):
    """Origin of a decision."""

    #: The server.
    DECIDED = "decided"
    #: An earlier denial by the server whose reset has not passed.
    DENIED_LOCALLY = "denied_locally"
    #: The policy `"open"`, since no answer arrived.
    FAILED_OPEN = "failed_open"
    #: The policy `"closed"`, since no answer arrived.
    FAILED_CLOSED = "failed_closed"

    def __str__(self) -> str:
        return self.value


class Status:
    """The answer for one descriptor."""

    __slots__ = ("limit", "mode", "over_limit", "remaining", "reset_after_ns")

    def __init__(
        self,
        over_limit: bool,
        limit: Limit | None,
        remaining: int,
        reset_after_ns: int | None,
        mode: str = "",
    ) -> None:
        #: Whether the descriptor is over its limit.
        self.over_limit = over_limit
        #: The tightest limit that applies; None if nothing limits the descriptor.
        self.limit = limit
        #: Hits that are left.
        self.remaining = remaining
        #: Nanoseconds until the limit resets; None if no wait helps or nothing limits the descriptor.
        self.reset_after_ns = reset_after_ns
        #: `quota` (it denies only if all quotas are over), `queued` (it may admit before its reset), or empty.
        self.mode = mode

    @property
    def reset_after(self) -> float | None:
        """Seconds until the limit resets."""
        return None if self.reset_after_ns is None else self.reset_after_ns / _NANOS

    def __repr__(self) -> str:
        return (
            f"Status(over_limit={self.over_limit}, limit={self.limit!r}, "
            f"remaining={self.remaining}, reset_after={self.reset_after})"
        )


class Decision:
    """The decision on a request, and the state of its limits.

    A decision is true if the request is allowed, so that `if client.limit(…):` reads as it should.
    """

    __slots__ = (
        "_elapsed_ns",
        "_response",
        "_statuses",
        "allowed",
        "body",
        "error",
        "error_message",
        "limit",
        "reason",
        "remaining",
        "request_headers",
        "reset_after_ns",
        "response_headers",
        "retry_after_ns",
        "rule",
        "ticket",
        "ticket_cost",
    )

    def __init__(
        self,
        allowed: bool,
        reason: Reason,
        statuses: Sequence[Status] = (),
        *,
        error: str | None = None,
        error_message: str | None = None,
        request_headers: Sequence[tuple[str, str]] = (),
        response_headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        ticket: str | None = None,
        ticket_cost: int = 1,
    ) -> None:
        #: Whether the request is admitted.
        self.allowed = allowed
        #: Origin of the decision.
        self.reason = reason
        #: Why there is no response: the name of a gRPC status code, or `BREAKER_OPEN`; None if there is one.
        self.error = error
        #: The cause in words, such as a refused connection; None if there is a response.
        self.error_message = error_message
        self._response: pb.RateLimitResponse | None = None
        #: Headers that the rules add to the request.
        self.request_headers = request_headers
        #: Headers that the rules or the server add to the response.
        self.response_headers = response_headers
        #: The body that the rules give a denial; empty for the caller's own.
        self.body = body
        #: The name of the slots and estimates that the request holds; None if it holds none.
        self.ticket = ticket
        #: Hits of the largest slot or estimate; 1 without a ticket.
        self.ticket_cost = ticket_cost
        self._elapsed_ns = 0
        self._set_statuses(statuses)

    @classmethod
    def _of_response(cls, allowed: bool, response: pb.RateLimitResponse) -> Decision:
        """Return the decision of a response, which is read at the first use of an attribute other than `allowed`."""
        decision = cls.__new__(cls)
        decision.allowed = allowed
        decision.reason = Reason.DECIDED
        decision.error = None
        decision.error_message = None
        decision._response = response
        decision._elapsed_ns = 0
        return decision

    if not TYPE_CHECKING:
        # Type checkers know the other attributes from `__init__`.

        def __getattr__(self, name: str) -> Any:
            """Read the response, and return the attribute that it sets."""
            if name not in _OF_RESPONSE:
                raise AttributeError(name)
            response = self._response
            self.request_headers = _headers(response.request_headers_to_add)
            self.response_headers = _headers(response.response_headers_to_add)
            self.body = response.raw_body
            self.ticket, self.ticket_cost = _ticket(response)
            self._set_statuses([_status(status) for status in response.statuses])
            return getattr(self, name)

    def __getstate__(self) -> dict[str, Any]:
        """Return all attributes, after the response was read."""
        state = {name: getattr(self, name) for name in self.__slots__}
        state["_response"] = None
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def _set_statuses(self, statuses: Sequence[Status]) -> None:
        self._statuses = statuses
        #: Requests per unit of the governing limit; None if nothing limits the request.
        self.limit: int | None = None
        #: Hits left of the governing limit.
        self.remaining: int | None = None
        #: Nanoseconds until the governing limit resets; None if no wait helps.
        self.reset_after_ns: int | None = None
        #: Nanoseconds after which a denied request would be admitted; None if allowed, or if no wait helps.
        self.retry_after_ns: int | None = None
        #: The name of the governing limit; empty if it has none.
        self.rule = ""
        governing = self._govern(statuses) if len(statuses) != 1 else self._govern_alone(statuses[0])
        if governing is not None and governing.limit is not None:
            self.limit = governing.limit.requests
            self.rule = governing.limit.name
            self.remaining = governing.remaining
            self.reset_after_ns = governing.reset_after_ns

    def _govern_alone(self, status: Status) -> Status | None:
        """Do what `_govern` does, for the common case of one status."""
        if self.allowed:
            return status
        if not status.over_limit:
            return None
        self.retry_after_ns = status.reset_after_ns
        return status

    def _govern(self, statuses: Sequence[Status]) -> Status | None:
        """Return the governing status; of a denial, set the wait too."""
        if self.allowed:
            limited = [status for status in statuses if status.limit is not None]
            return min(limited, key=_remaining) if limited else None
        denying = _awaited(statuses)
        if not denying:
            return None
        # Without a reset no wait helps: longer than any.
        longest = max(denying, key=_wait)
        self.retry_after_ns = longest.reset_after_ns
        limited = [status for status in denying if status.limit is not None]
        return max(limited, key=_wait) if limited else None

    def _after(self, elapsed_ns: int) -> Decision:
        """Return the same denial as of a later time, as decided locally."""
        later = Decision.__new__(Decision)
        later.allowed = False
        later.reason = Reason.DENIED_LOCALLY
        later.error = None
        later.error_message = None
        later._response = None
        later.request_headers = self.request_headers
        later.response_headers = [(name, _aged(name, value, elapsed_ns)) for name, value in self.response_headers]
        later.body = self.body
        later.ticket = None
        later.ticket_cost = 1
        later.limit = self.limit
        later.remaining = self.remaining
        later.rule = self.rule
        later._statuses = self._statuses
        later._elapsed_ns = elapsed_ns
        later.reset_after_ns = _less(self.reset_after_ns, elapsed_ns)
        later.retry_after_ns = _less(self.retry_after_ns, elapsed_ns)
        return later

    @property
    def statuses(self) -> Sequence[Status]:
        """One status for each descriptor, in order; empty without an answer."""
        elapsed = self._elapsed_ns
        if not elapsed:
            return self._statuses
        return [
            Status(s.over_limit, s.limit, s.remaining, _less(s.reset_after_ns, elapsed), s.mode) for s in self._statuses
        ]

    @property
    def may_be_kept(self) -> bool:
        """Whether the denial holds for the same request until its reset: not if a quota, a queue or slots deny."""
        return bool(self.retry_after_ns) and not any(status.over_limit and status.mode for status in self._statuses)

    @property
    def reset_after(self) -> float | None:
        """Seconds until the governing limit resets; None if no wait helps."""
        return None if self.reset_after_ns is None else self.reset_after_ns / _NANOS

    @property
    def retry_after(self) -> float | None:
        """Seconds after which a denied request would be admitted; None if allowed, or if no wait helps."""
        return None if self.retry_after_ns is None else self.retry_after_ns / _NANOS

    def headers(self, *, legacy: bool = False) -> dict[str, str]:
        """Return the headers for the response: `RateLimit`, `RateLimit-Policy` and `Retry-After`.

        With `legacy` also `X-RateLimit-Limit`, `-Remaining` and `-Reset`. Headers of the server come last and
        replace those of the same name. A request that a rule marks has those of the server only.
        """
        headers: dict[str, str] = {}
        if self.allowed and self.request_headers:
            # The client must not learn that it is marked.
            return dict(self.response_headers)
        statuses = self.statuses
        if applying := _distinct(statuses):
            shown = applying if self.allowed else _distinct(_denying(statuses))
            headers["RateLimit-Policy"] = ", ".join(policy(limit) for limit, _ in applying)
            if shown:
                headers["RateLimit"] = ", ".join(_service_limit(*limited, not self.allowed) for limited in shown)
        if legacy and self.limit is not None:
            headers["X-RateLimit-Limit"] = str(self.limit)
            headers["X-RateLimit-Remaining"] = str(min(self.remaining or 0, self.limit))
            if self.reset_after_ns is not None and not (self.allowed and self._is_queued()):
                headers["X-RateLimit-Reset"] = str(_seconds(self.reset_after_ns))
        if self.retry_after_ns is not None:
            headers["Retry-After"] = str(_seconds(self.retry_after_ns))
        for name, value in self.response_headers:
            for own in [own for own in headers if own.lower() == name.lower()]:
                del headers[own]
            headers[name] = value
        return headers

    def _is_queued(self) -> bool:
        """Return whether the governing limit of an admission may admit before its reset."""
        limited = [status for status in self._statuses if status.limit is not None]
        return bool(limited) and min(limited, key=_remaining).mode == "queued"

    def __bool__(self) -> bool:
        return self.allowed

    def __repr__(self) -> str:
        return (
            f"Decision(allowed={self.allowed}, reason={str(self.reason)!r}, limit={self.limit}, "
            f"remaining={self.remaining}, reset_after={self.reset_after}, "
            f"retry_after={self.retry_after}, rule={self.rule!r}, error={self.error!r}, "
            f"error_message={self.error_message!r})"
        )


#: Attributes that are set when a response is read.
_OF_RESPONSE: Final = frozenset(Decision.__slots__) - {
    "_elapsed_ns",
    "_response",
    "allowed",
    "error",
    "error_message",
    "reason",
}


def _status(status: pb.RateLimitResponse.DescriptorStatus) -> Status:
    limit = None
    if status.HasField("current_limit"):
        current = status.current_limit
        window_ns = _nanos(current.window) if current.HasField("window") else None
        limit = Limit(current.requests_per_unit, _LIMIT_UNITS.get(current.unit, ""), current.name, window_ns)
    reset_ns = None
    if status.HasField("duration_until_reset"):
        reset_ns = _nanos(status.duration_until_reset)
    mode = _MODES.get(status.mode, "")
    return Status(status.code == _OVER_LIMIT, limit, status.limit_remaining, reset_ns, mode)


def _ticket(response: pb.RateLimitResponse) -> tuple[str | None, int]:
    """Return the ticket, and its cost."""
    fields = response.dynamic_metadata.fields
    slot, cost = fields.get("slot"), fields.get("cost")
    ticket = None if slot is None else slot.string_value or None
    return ticket, 1 if ticket is None or cost is None else max(int(cost.number_value), 1)


def _nanos(duration: Duration) -> int:
    return duration.seconds * _NANOS + duration.nanos


def _headers(headers: Iterable[pb.RateLimitResponse.HeaderValue]) -> Sequence[tuple[str, str]]:
    return tuple((header.key, header.value or header.raw_value.decode("latin-1")) for header in headers)


def _denying(statuses: Sequence[Status]) -> list[Status]:
    """Return the statuses that deny: those over their limits, quotas only if all of them are."""
    if any(status.mode == "quota" and not status.over_limit for status in statuses):
        return [status for status in statuses if status.over_limit and status.mode != "quota"]
    return [status for status in statuses if status.over_limit]


def _awaited(statuses: Sequence[Status]) -> list[Status]:
    """Return the denying statuses that have to reset: of quotas the first to do so."""
    denying = _denying(statuses)
    quotas = [status for status in denying if status.mode == "quota"]
    if not quotas:
        return denying
    first = min(quotas, key=_wait)
    return [status for status in denying if status.mode != "quota" or status is first]


def _aged(name: str, value: str, elapsed_ns: int) -> str:
    """Return a header of the server as of a later time: its seconds, rounded up."""

    def less(seconds: str) -> str:
        return str(_seconds(max(int(seconds) * _NANOS - elapsed_ns, 0)))

    lower = name.lower()
    if lower in ("retry-after", "ratelimit-reset", "x-ratelimit-reset") and value.isdecimal():
        return value if int(value) >= _UNIX_MIN else less(value)
    if lower == "ratelimit":
        return _SECONDS_LEFT.sub(lambda found: f";t={less(found[1])}", value)
    return value


def _remaining(status: Status) -> int:
    return status.remaining


def _wait(status: Status) -> float:
    return float("inf") if status.reset_after_ns is None else status.reset_after_ns


def _less(nanos: int | None, elapsed: int) -> int | None:
    return None if nanos is None else max(nanos - elapsed, 0)


def _seconds(nanos: int) -> int:
    """Return whole seconds, rounded up: waiting that long is long enough."""
    return -(-nanos // _NANOS)


def _distinct(statuses: Sequence[Status]) -> list[tuple[Limit, Status]]:
    """Return the limits of the statuses, each once with its tighter status."""
    distinct: dict[object, tuple[Limit, Status]] = {}
    for status in statuses:
        limit = status.limit
        if limit is None:
            continue
        key: object = limit.name or (limit.requests, limit.unit, limit.window_ns)
        known = distinct.get(key)
        if known is None or _is_tighter(status, known[1]):
            # An update keeps the place of the first.
            distinct[key] = (limit, status)
    return list(distinct.values())


def _is_tighter(status: Status, than: Status) -> bool:
    if status.over_limit != than.over_limit:
        return status.over_limit
    if status.over_limit:
        return _wait(status) > _wait(than)
    return status.remaining < than.remaining


def _service_limit(limit: Limit, status: Status, is_denial: bool) -> str:
    """Return an item of `RateLimit`; an admission has no `t`: its reset is the time until the whole limit is free."""
    reset = "" if not is_denial or status.reset_after_ns is None else f";t={_seconds(status.reset_after_ns)}"
    return f"{quoted(limit)};r={min(status.remaining, limit.requests)}{reset}"
