"""The client without its transport: requests, and the decisions of responses and failures.

Both clients, the blocking one and that of asyncio, drive this in the same order: `begin`, one call, then exactly one of
`answered`, `failed` and `abandoned`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias

from google.protobuf.message import DecodeError

from tidegate._breaker import Breaker, Permit
from tidegate._decision import Decision, Reason
from tidegate._denials import LocalDenials
from tidegate._proto import rls_pb2 as pb
from tidegate._request import DescriptorLike, Request

_logger = logging.getLogger("tidegate")

#: The decision for a request without a response.
OnFailure: TypeAlias = Literal["open", "closed"]
#: Called with each decision and the seconds it took.
Observer: TypeAlias = Callable[[Decision, float], None]
#: Returns metadata for a call, such as the trace context.
MetadataSource: TypeAlias = Callable[[], Iterable[tuple[str, str]]]

METHOD: Final = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

_EXACT: Final[Metadata] = (("tidegate-precision", "exact"),)
_NANOS: Final = 1_000_000_000
#: Errors of the caller or of the configuration. Failing open would let an overlong key pass every limit.
_RAISED: Final = frozenset(
    ("INVALID_ARGUMENT", "OUT_OF_RANGE", "UNIMPLEMENTED", "UNAUTHENTICATED", "PERMISSION_DENIED")
)
_OK: Final = pb.RateLimitResponse.OK
_OVER_LIMIT: Final = pb.RateLimitResponse.OVER_LIMIT


class RequestError(Exception):
    """The server refused the request itself: retrying it cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        #: The name of the gRPC status code.
        self.code = code


class RateLimited(Exception):  # noqa: N818 (a decision, not an error)
    """A decorated function was called beyond its limit, or without an answer under the policy `"closed"`."""

    def __init__(self, decision: Decision) -> None:
        wait = decision.retry_after
        super().__init__(
            f"{decision.reason}: {decision.error or decision.rule or 'rate limit'}"
            + ("" if wait is None else f"; retry after {wait:.3f} s")
        )
        #: The denial.
        self.decision = decision


class Call:
    """A call that is to be made."""

    __slots__ = ("metadata", "on_failure", "permit", "request", "sent_ns", "timeout", "uses_local")

    def __init__(
        self,
        request: Request,
        permit: Permit,
        sent_ns: int,
        on_failure: OnFailure,
        timeout: float,
        uses_local: bool,
        metadata: Metadata,
    ) -> None:
        self.request = request
        self.permit = permit
        self.sent_ns = sent_ns
        self.on_failure = on_failure
        self.timeout = timeout
        self.uses_local = uses_local
        self.metadata = metadata


def parsed(message: bytes) -> pb.RateLimitResponse | None:
    """Return the answer; None if it cannot be decoded, which grpc.aio would make of an exception, too."""
    try:
        return pb.RateLimitResponse.FromString(message)
    except DecodeError:
        return None


class Engine:
    """Settings and state that the calls of one client share."""

    def __init__(
        self,
        *,
        domain: str,
        timeout: float,
        connect_timeout: float,
        on_failure: OnFailure,
        local_denials: int,
        breaker_failures: int,
        breaker_open: float,
        observers: Sequence[Observer],
        metadata: Sequence[MetadataSource],
        clock: Callable[[], int],
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}; use seconds above 0, such as 0.05")
        self._domain = domain
        self._timeout = timeout
        #: The timeout until the first call is over: it opens the connection.
        self._first_timeout = max(timeout, connect_timeout)
        self._is_first = True
        #: Code and message of the last failure.
        self._last_failure = ""
        self._on_failure = _policy(on_failure)
        self._denials = LocalDenials(local_denials)
        self._keeps_denials = local_denials > 0
        self.breaker = Breaker(breaker_failures, int(breaker_open * _NANOS))
        self._observers = tuple(observers)
        self._metadata = tuple(metadata)
        self._clock = clock

    def begin(
        self,
        descriptors: tuple[DescriptorLike, ...],
        named: Mapping[str, str],
        cost: int,
        *,
        domain: str | None,
        on_failure: OnFailure | None,
        timeout: float | None,
        local_denials: bool,
        give_back: bool = False,
    ) -> Call | Decision:
        """Return the call to make, or the decision where none is needed."""
        request = Request(domain or self._domain, descriptors, named, cost, give_back)
        policy = self._on_failure if on_failure is None else _policy(on_failure)
        now_ns = self._clock()
        uses_local = local_denials and self._keeps_denials
        if uses_local:
            denial = self._denials.find(request, now_ns)
            if denial is not None:
                self._observe(denial, now_ns)
                return denial
        if request.gives_back:
            self._denials.end_for(request)
        permit = self.breaker.enter(now_ns)
        if permit is Permit.NONE:
            return self._without_answer(policy, "BREAKER_OPEN", self._last_failure, now_ns)
        if timeout is None:
            timeout = self._first_timeout if self._is_first else self._timeout
        metadata: Metadata = _EXACT
        if self._metadata:
            metadata = (*_EXACT, *(pair for source in self._metadata for pair in source()))
        return Call(request, permit, now_ns, policy, timeout, uses_local, metadata)

    def answered(self, call: Call, response: pb.RateLimitResponse | None) -> Decision:
        """Return the decision of an answer; None is one that cannot be decoded."""
        self._is_first = False
        if response is None:
            return self.failed(call, "INTERNAL", "an answer that cannot be decoded")
        if response.overall_code == _OK:
            decision = Decision._of_response(True, response)
        elif response.overall_code == _OVER_LIMIT:
            decision = Decision._of_response(False, response)
            if call.uses_local:
                self._denials.keep(call.request, decision, call.sent_ns)
        else:
            return self.failed(call, "INTERNAL", "an answer without a verdict")
        self.breaker.succeeded(call.permit)
        self._observe(decision, call.sent_ns)
        return decision

    def failed(self, call: Call, code: str, message: str) -> Decision:
        """Return the decision of the policy, or raise if the request itself is at fault."""
        self._is_first = False
        if code in _RAISED:
            self.breaker.succeeded(call.permit)
            raise RequestError(code, message)
        self._last_failure = f"{code}: {message}"
        was_open = self.breaker.is_open
        self.breaker.failed(call.permit, self._clock())
        if not was_open and self.breaker.is_open:
            _logger.warning("no answers from the rate limit server (%s: %s)", code, message)
        return self._without_answer(call.on_failure, code, message, call.sent_ns)

    def abandoned(self, call: Call) -> None:
        """Record that the caller gave the call up."""
        self.breaker.abandoned(call.permit)

    def _without_answer(self, policy: OnFailure, error: str, message: str, sent_ns: int) -> Decision:
        if policy == "open":
            decision = Decision(True, Reason.FAILED_OPEN, error=error, error_message=message)
        else:
            decision = Decision(False, Reason.FAILED_CLOSED, error=error, error_message=message)
        self._observe(decision, sent_ns)
        return decision

    def _observe(self, decision: Decision, since_ns: int) -> None:
        if not self._observers:
            return
        seconds = (self._clock() - since_ns) / _NANOS
        for observer in self._observers:
            try:
                observer(decision, seconds)
            except Exception:
                _logger.exception("an observer of rate limit decisions failed")


class Waiting:
    """The loop of `wait_until_ready`: how long to wait before the next call."""

    def __init__(self, timeout: float, clock: Callable[[], int] = time.monotonic_ns) -> None:
        self._clock = clock
        self._until_ns = clock() + int(timeout * _NANOS)

    def before_retry(self, decision: Decision) -> float | None:
        """Return the seconds to wait; None if the decision stands."""
        wait_ns = decision.retry_after_ns
        if decision.allowed or wait_ns is None or self._clock() + wait_ns > self._until_ns:
            return None
        # The next nanosecond that a float holds: never shorter than the wait.
        return (wait_ns + 1000) / _NANOS


def _policy(on_failure: OnFailure) -> OnFailure:
    if on_failure not in ("open", "closed"):
        raise ValueError(f'on_failure is {on_failure!r}; use "open" or "closed"')
    return on_failure
