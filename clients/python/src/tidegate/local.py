"""Limits that are counted in this process: for requests without an answer, and in tests of applications.

```python
from tidegate import Tidegate
from tidegate.local import LocalLimit

client = Tidegate("127.0.0.1:8081", domain="shop", fallback=[LocalLimit(["user"], 20, per=60)])
```

They count by the algorithms of the server, exactly, and know nothing of other processes: as a fallback, a service of
ten processes admits up to ten times as much.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Literal, TypeAlias

from tidegate._decision import Decision, Reason, Status
from tidegate._limit import Limit

_NANOS = 1_000_000_000

#: The algorithm of a limit, as in the rules of the server.
Algorithm: TypeAlias = Literal["token_bucket", "fixed_window"]

#: Entries of a descriptor, its hits, and whether these are given back.
Part: TypeAlias = tuple[Sequence[tuple[str, str]], int, bool]


class LocalLimit:
    """A limit for each combination of values of descriptors with these keys."""

    __slots__ = ("algorithm", "keys", "limit", "per_ns", "requests")

    def __init__(
        self,
        keys: Iterable[str],
        requests: int,
        *,
        per: float,
        algorithm: Algorithm = "token_bucket",
        name: str = "",
    ) -> None:
        """Create a limit of `requests` in `per` seconds."""
        #: The keys of a descriptor's entries, in order.
        self.keys = tuple(keys)
        #: Hits that fit into a window, or into the bucket.
        self.requests = requests
        #: Nanoseconds of the window, or until an empty bucket is full.
        self.per_ns = round(per * _NANOS)
        self.algorithm = algorithm
        #: The limit, as decisions have it.
        self.limit = Limit(requests, "", name, self.per_ns)
        if isinstance(keys, str) or not self.keys:
            raise ValueError('keys is empty or a str; name the keys of a descriptor, such as ["user"]')
        if requests < 1 or self.per_ns < 1:
            raise ValueError(f"requests is {requests} and per is {per}; use more than 0")
        if algorithm not in ("token_bucket", "fixed_window"):
            raise ValueError(f'algorithm is {algorithm!r}; use "token_bucket" or "fixed_window"')


class _Counter:
    """Hits used of a limit, in units of one hit times `per_ns`, so that a bucket refills exactly."""

    __slots__ = ("at_ns", "used")

    def __init__(self, at_ns: int) -> None:
        self.at_ns = at_ns
        self.used = 0

    def advance(self, limit: LocalLimit, now_ns: int) -> None:
        """Apply the time since the last use: a bucket refills, a window ends. No time passes if a clock steps back."""
        now_ns = max(now_ns, self.at_ns)
        if limit.algorithm == "token_bucket":
            self.used = max(0, self.used - (now_ns - self.at_ns) * limit.requests)
        elif now_ns // limit.per_ns != self.at_ns // limit.per_ns:
            self.used = 0
        self.at_ns = now_ns

    def status(self, limit: LocalLimit, cost: int, *, over: bool) -> Status:
        """Return the status: the wait of such a request over the limit, or the time until the limit is free."""
        per_ns = limit.per_ns
        remaining = (limit.requests * per_ns - self.used) // per_ns
        excess = self.used + (cost - limit.requests) * per_ns if over else self.used
        if limit.algorithm == "token_bucket":
            reset_ns = -(-excess // limit.requests)
        else:
            reset_ns = per_ns - self.at_ns % per_ns if self.used or over else 0
        return Status(over, limit.limit, remaining, None if over and cost > limit.requests else reset_ns)


class LocalLimits:
    """Counts requests in this process, all or nothing. Several threads may use it."""

    def __init__(
        self,
        limits: Iterable[LocalLimit],
        *,
        counters_max: int = 100_000,
        clock: Callable[[], int] | None = None,
    ) -> None:
        """Create the limits; `clock` is Unix nanoseconds. Beyond the maximum, the least recently used counter goes."""
        self._limits = tuple(limits)
        self._max = counters_max
        self._clock = _steady_clock() if clock is None else clock
        self._counters: OrderedDict[tuple[int, tuple[str, ...]], _Counter] = OrderedDict()
        self._lock = Lock()

    def decide(self, parts: Iterable[Part]) -> Decision:
        """Return the decision on a request, and take or give back its hits."""
        with self._lock:
            now_ns = self._clock()
            charges = [self._charge(part, now_ns) for part in parts]
            is_over = [
                not gives_back and reached is not None and not _fits(*reached, max(cost, 1))
                for (reached, cost, gives_back) in charges
            ]
            allowed = not any(is_over)
            statuses = []
            for (reached, cost, gives_back), over in zip(charges, is_over, strict=True):
                if reached is None:
                    statuses.append(Status(False, None, 0, None))
                    continue
                limit, counter = reached
                if gives_back:
                    counter.used = max(0, counter.used - cost * limit.per_ns)
                elif allowed:
                    counter.used += cost * limit.per_ns
                statuses.append(counter.status(limit, max(cost, 1), over=over))
            while len(self._counters) > self._max:
                self._counters.popitem(last=False)
        return Decision(allowed, Reason.DECIDED, statuses)

    def _charge(self, part: Part, now_ns: int) -> tuple[tuple[LocalLimit, _Counter] | None, int, bool]:
        entries, cost, gives_back = part
        keys = tuple(key for key, _ in entries)
        for index, limit in enumerate(self._limits):
            if limit.keys == keys:
                identity = (index, tuple(value for _, value in entries))
                counter = self._counters.setdefault(identity, _Counter(now_ns))
                self._counters.move_to_end(identity)
                counter.advance(limit, now_ns)
                return (limit, counter), cost, gives_back
        return None, cost, gives_back


def _steady_clock() -> Callable[[], int]:
    """Return a clock of Unix nanoseconds, set once. A wall clock that steps back would stop the refill of buckets."""
    started_ns = time.time_ns() - time.monotonic_ns()
    return lambda: started_ns + time.monotonic_ns()


def _fits(limit: LocalLimit, counter: _Counter, cost: int) -> bool:
    return counter.used + cost * limit.per_ns <= limit.requests * limit.per_ns
