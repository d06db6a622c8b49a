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

from tidegate._breaker import Permit
from tidegate._decision import Decision, Reason, Status
from tidegate._denials import LocalDenials
from tidegate._proto import rls_pb2 as pb
from tidegate._request import DescriptorLike, Request
from tidegate._servers import Server, Servers
from tidegate.local import LocalLimit, LocalLimits

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
#: The longest wait, 31 years, also of a wait without end.
_SECONDS_MAX: Final = 1_000_000_000
#: Time between two lines about a server that does not answer.
_LOGGED_EVERY_NS: Final = 60 * _NANOS
#: Errors of the caller: failing open would let an overlong key pass every limit. Every other status is a failure of the
#: server, or of a proxy in front of it.
_RAISED: Final = frozenset(("INVALID_ARGUMENT", "OUT_OF_RANGE"))
_OK: Final = pb.RateLimitResponse.OK
_OVER_LIMIT: Final = pb.RateLimitResponse.OVER_LIMIT


class RequestError(Exception):
    """The server refused the request itself: retrying it cannot help."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        #: The name of the gRPC status code.
        self.code = code
        self._message = message

    def __reduce__(self) -> tuple[type[RequestError], tuple[str, str]]:
        return type(self), (self.code, self._message)


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

    def __reduce__(self) -> tuple[type[RateLimited], tuple[Decision]]:
        return type(self), (self.decision,)


class Call:
    """A call that is to be made."""

    __slots__ = (
        "has_default_timeout",
        "metadata",
        "on_failure",
        "permit",
        "probed",
        "request",
        "sent_ns",
        "server",
        "timeout",
        "uses_local",
    )

    def __init__(
        self,
        request: Request,
        server: Server,
        permit: Permit,
        probed: Server | None,
        sent_ns: int,
        on_failure: OnFailure,
        timeout: float,
        uses_local: bool,
        metadata: Metadata,
    ) -> None:
        self.request = request
        self.server = server
        self.permit = permit
        #: A server to probe beside the call.
        self.probed = probed
        self.sent_ns = sent_ns
        self.on_failure = on_failure
        self.timeout = timeout
        #: Whether the timeout is that of the client.
        self.has_default_timeout = True
        self.uses_local = uses_local
        self.metadata = metadata


def parsed(message: bytes) -> pb.RateLimitResponse | None:
    """Return the answer; None if it cannot be decoded, which grpc.aio makes of an exception, too."""
    try:
        return pb.RateLimitResponse.FromString(message)
    except DecodeError:
        return None


class Engine:
    """Settings and state that the calls of one client share."""

    def __init__(
        self,
        *,
        targets: Sequence[str],
        domain: str,
        timeout: float,
        connect_timeout: float,
        on_failure: OnFailure,
        local_denials: int,
        local_denials_for: float,
        breaker_failures: int,
        breaker_open: float,
        observers: Sequence[Observer],
        metadata: Sequence[MetadataSource],
        clock: Callable[[], int],
        fallback: Sequence[LocalLimit] = (),
    ) -> None:
        if timeout <= 0:
            raise ValueError(f"timeout is {timeout}; use seconds above 0, such as 0.05")
        self._domain = domain
        self._timeout = timeout
        #: The timeout until the first call is over: it opens the connection.
        self._first_timeout = max(timeout, connect_timeout)
        self._on_failure = _policy(on_failure)
        self._denials = LocalDenials(local_denials, _nanos(local_denials_for))
        self._keeps_denials = local_denials > 0 and local_denials_for > 0
        open_ns = _nanos(breaker_open)
        self.servers = Servers([Server(target, breaker_failures, open_ns) for target in targets])
        self.is_closed = False
        #: Decisions without an answer since the last line about them.
        self._unanswered = 0
        #: When that line was written; None while the server answers.
        self._logged_ns: int | None = None
        #: When a refused request was last logged.
        self._refused_ns: int | None = None
        self._observers = tuple(observers)
        self._metadata = tuple(metadata)
        self._clock = clock
        #: Limits of requests without an answer.
        self._fallback = LocalLimits(fallback) if fallback else None

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
        """Return the call to make, or the decision if no call is needed."""
        if self.is_closed:
            raise RuntimeError("the client is closed; create another one")
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
        metadata = (*_EXACT, *self._metadata_of_sources()) if self._metadata else _EXACT
        choice = self.servers.choose(now_ns)
        if choice is None:
            return self._without_answer(policy, "BREAKER_OPEN", self.servers.all[0].last_failure, now_ns, request)
        server, permit, probed = choice
        is_default = timeout is None
        if timeout is None:
            timeout = self._first_timeout if server.is_first else self._timeout
        call = Call(request, server, permit, probed, now_ns, policy, timeout, uses_local, metadata)
        call.has_default_timeout = is_default
        return call

    def opens_connection(self, call: Call) -> None:
        """Give a call that opens a connection the time for it."""
        if call.has_default_timeout:
            call.timeout = self._first_timeout

    def _metadata_of_sources(self) -> list[tuple[str, str]]:
        """Return the metadata of all sources, except of sources that fail."""
        pairs: list[tuple[str, str]] = []
        for source in self._metadata:
            try:
                pairs.extend(source())
            except Exception:
                _logger.exception("a source of metadata for rate limit calls failed")
        return pairs

    def answered(self, call: Call, response: pb.RateLimitResponse | None) -> Decision:
        """Return the decision of an answer, or of None for an answer that cannot be decoded."""
        call.server.is_first = False
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
        call.server.breaker.succeeded(call.permit, call.sent_ns)
        if self._logged_ns is not None:
            self._log_answer()
        self._observe(decision, call.sent_ns)
        return decision

    def failed(self, call: Call, code: str, message: str) -> Decision:
        """Return the decision of the policy, or raise if the request itself is at fault."""
        call.server.is_first = False
        if code in _RAISED:
            call.server.breaker.succeeded(call.permit, call.sent_ns)
            self._log_refused(code, message)
            raise RequestError(code, message)
        self._note_failure(call.server, call.permit, code, message, call.sent_ns)
        return self._without_answer(call.on_failure, code, message, call.sent_ns, call.request)

    def abandoned(self, call: Call) -> None:
        """Record that the caller cancelled the call."""
        call.server.breaker.abandoned(call.permit)

    def probe_ended(self, server: Server, sent_ns: int, failure: tuple[str, str] | None) -> None:
        """Record the outcome of a probe beside a call: code and message, or None if it was answered."""
        if failure is None or failure[0] in _RAISED:
            server.breaker.succeeded(Permit.PROBE, sent_ns)
        else:
            self._note_failure(server, Permit.PROBE, *failure, sent_ns)

    def _note_failure(self, server: Server, permit: Permit, code: str, message: str, sent_ns: int) -> None:
        server.last_failure = f"{code}: {message}"
        server.breaker.failed(permit, sent_ns, self._clock(), self.servers.has_other(server))

    def probe_of(self, call: Call) -> tuple[pb.RateLimitRequest, float]:
        """Return the message and the timeout of a probe beside a call: a peek of the same request."""
        message = call.request.message()
        for descriptor in message.descriptors:
            descriptor.hits_addend.value = 0
            descriptor.is_negative_hits = False
        return message, self._first_timeout

    def _log_refused(self, code: str, message: str) -> None:
        now_ns = self._clock()
        if self._refused_ns is None or now_ns - self._refused_ns >= _LOGGED_EVERY_NS:
            self._refused_ns = now_ns
            _logger.warning(
                "the rate limit server refuses a request (%s: %s); middleware answers with 400", code, message
            )

    def _log_failure(self, policy: OnFailure, error: str, message: str) -> None:
        now_ns = self._clock()
        self._unanswered += 1
        if self._logged_ns is not None and now_ns - self._logged_ns < _LOGGED_EVERY_NS:
            return
        unanswered, self._unanswered, self._logged_ns = self._unanswered, 0, now_ns
        _logger.warning(
            "no answer from the rate limit server (%s: %s); requests are %s, %d since the last message",
            error,
            message,
            "allowed" if policy == "open" else "denied",
            unanswered,
        )

    def _log_answer(self) -> None:
        self._logged_ns = None
        self._unanswered = 0
        _logger.info("the rate limit server answers again")

    def _without_answer(self, policy: OnFailure, error: str, message: str, sent_ns: int, request: Request) -> Decision:
        allowed, statuses = policy == "open", self._fallback_statuses(request)
        if statuses:
            allowed = not any(status.over_limit for status in statuses)
        reason = Reason.FAILED_OPEN if allowed else Reason.FAILED_CLOSED
        decision = Decision(allowed, reason, statuses, error=error, error_message=message)
        self._log_failure(policy, error, message)
        self._observe(decision, sent_ns)
        return decision

    def _fallback_statuses(self, request: Request) -> Sequence[Status]:
        """Count a request in this process; empty if no limit of the fallback applies to it."""
        if self._fallback is None:
            return ()
        parts = [
            (entries, cost, gives_back)
            for (entries, _, gives_back), cost in zip(request.parts, request.costs, strict=True)
        ]
        statuses = self._fallback.decide(parts).statuses
        return statuses if any(status.limit is not None for status in statuses) else ()

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
        self._until_ns = clock() + _nanos(timeout)

    def before_retry(self, decision: Decision) -> float | None:
        """Return the seconds to wait; None if the decision stands."""
        wait_ns = decision.retry_after_ns
        if decision.allowed or wait_ns is None or self._clock() + wait_ns > self._until_ns:
            return None
        # The next nanosecond that a float can hold: never shorter than the wait.
        return (wait_ns + 1000) / _NANOS


def _nanos(seconds: float) -> int:
    """Return the nanoseconds of seconds, which may be infinite."""
    return int(min(seconds, _SECONDS_MAX) * _NANOS)


def _policy(on_failure: OnFailure) -> OnFailure:
    if on_failure not in ("open", "closed"):
        raise ValueError(f'on_failure is {on_failure!r}; use "open" or "closed"')
    return on_failure
