"""Clients for tests of applications: they connect to nothing, and the test makes the decisions.

```python
from tidegate.testing import FakeTidegate, denied

client = FakeTidegate(denied(retry_after=30))
assert not client.limit(user="ann")
assert client.calls[0].entries == ({"user": "ann"},)
```

A function of the call decides differently from call to call: `FakeTidegate(lambda call: admitted())`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tidegate import _sync, aio
from tidegate._decision import Decision, Reason, Status
from tidegate._engine import Engine, Observer
from tidegate._limit import Limit
from tidegate._request import DescriptorLike, Request
from tidegate.local import LocalLimit, LocalLimits

_NANOS = 1_000_000_000


@dataclass(frozen=True)
class FakeCall:
    """A call of a client."""

    #: The domain.
    domain: str
    #: The entries of each descriptor.
    entries: tuple[dict[str, str], ...]
    #: Hits of each descriptor; 0 of a `peek`.
    costs: tuple[int, ...]
    #: Whether hits are given back.
    gives_back: bool


#: The decision on each call, or a function that makes it.
Decide: TypeAlias = Decision | Callable[[FakeCall], Decision]


def admitted(
    *,
    limit: int = 100,
    remaining: int = 99,
    rule: str = "",
    reset_after: float = 60.0,
    ticket: str | None = None,
    ticket_cost: int = 1,
) -> Decision:
    """Return an admission by a limit of `limit` requests a minute; with a `ticket` it holds `ticket_cost` hits."""
    status = Status(False, Limit(limit, "minute", rule), remaining, int(reset_after * _NANOS))
    return Decision(True, Reason.DECIDED, [status], ticket=ticket, ticket_cost=ticket_cost)


def denied(*, retry_after: float | None = 60.0, limit: int = 100, rule: str = "", body: bytes = b"") -> Decision:
    """Return a denial by a limit of `limit` requests a minute."""
    wait = None if retry_after is None else int(retry_after * _NANOS)
    return Decision(False, Reason.DECIDED, [Status(True, Limit(limit, "minute", rule), 0, wait)], body=body)


def failed(*, is_open: bool = True, error: str = "UNAVAILABLE") -> Decision:
    """Return the decision without an answer, of the policy `"open"` or `"closed"`."""
    reason = Reason.FAILED_OPEN if is_open else Reason.FAILED_CLOSED
    return Decision(is_open, reason, error=error, error_message="a test")


def counting(
    limits: Iterable[LocalLimit], *, clock: Callable[[], int] = time.time_ns
) -> Callable[[FakeCall], Decision]:
    """Return a function that counts as a server with these limits does: `FakeTidegate(counting([LocalLimit(…)]))`.

    `clock` is Unix nanoseconds, which a test may set.
    """
    local = LocalLimits(limits, clock=clock)

    def decide(call: FakeCall) -> Decision:
        pairs = zip(call.entries, call.costs, strict=True)
        return local.decide([(tuple(entries.items()), cost, call.gives_back) for entries, cost in pairs])

    return decide


class _FakeEngine(Engine):
    """Makes every decision before a call."""

    def __init__(self, decide: Decide, domain: str, observers: Sequence[Observer]) -> None:
        super().__init__(
            targets=(),
            domain=domain,
            timeout=1,
            connect_timeout=1,
            on_failure="open",
            local_denials=0,
            local_denials_for=0,
            breaker_failures=0,
            breaker_open=1,
            observers=observers,
            metadata=(),
            clock=time.monotonic_ns,
        )
        self._decide = decide
        self.calls: list[FakeCall] = []

    def begin(
        self,
        descriptors: tuple[DescriptorLike, ...],
        named: Mapping[str, str],
        cost: int,
        *,
        domain: str | None,
        give_back: bool = False,
        **_: Any,
    ) -> Decision:
        """Return the decision of the test."""
        if self.is_closed:
            raise RuntimeError("the client is closed; create another one")
        request = Request(domain or self._domain, descriptors, named, cost, give_back)
        entries = tuple(dict(of_descriptor) for of_descriptor, _, _ in request.parts)
        call = FakeCall(request.domain, entries, request.costs, request.gives_back)
        self.calls.append(call)
        decision = self._decide if isinstance(self._decide, Decision) else self._decide(call)
        self._observe(decision, self._clock())
        return decision


class FakeTidegate(_sync.Tidegate):
    """A `tidegate.Tidegate` that connects to nothing."""

    def __init__(
        self, decide: Decide | None = None, *, domain: str = "test", observers: Sequence[Observer] = ()
    ) -> None:
        """Create a client; `decide` is the decision on each call or a function of it, by default an admission."""
        super().__init__(domain=domain)
        self._fake = _FakeEngine(admitted() if decide is None else decide, domain, observers)
        self._engine = self._fake

    @property
    def calls(self) -> Sequence[FakeCall]:
        """The calls so far."""
        return self._fake.calls


class FakeAioTidegate(aio.Tidegate):
    """A `tidegate.aio.Tidegate` that connects to nothing."""

    def __init__(
        self, decide: Decide | None = None, *, domain: str = "test", observers: Sequence[Observer] = ()
    ) -> None:
        """Create a client; see `FakeTidegate`."""
        super().__init__(domain=domain)
        self._fake = _FakeEngine(admitted() if decide is None else decide, domain, observers)
        self._engine = self._fake

    @property
    def calls(self) -> Sequence[FakeCall]:
        """The calls so far."""
        return self._fake.calls
