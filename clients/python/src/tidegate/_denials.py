"""Denials that are kept until their reset, for a bounded time.

Invariant: a kept denial answers only requests that the server would deny as well, unless the limit was reset, replaced
or raised, or another process gave hits back, since the denial. The bound limits how long these go unnoticed.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from tidegate._decision import Decision
from tidegate._request import Request


class _Kept:
    __slots__ = ("costs", "decision", "sent_ns", "until_ns")

    def __init__(self, costs: tuple[int, ...], decision: Decision, sent_ns: int, until_ns: int):
        self.costs = costs
        self.decision = decision
        self.sent_ns = sent_ns
        self.until_ns = until_ns


class LocalDenials:
    """A bounded map from requests to their denials; when it is full, the least recently used denial is dropped."""

    def __init__(self, denials_max: int, kept_ns_max: int) -> None:
        self._max = denials_max if kept_ns_max > 0 else 0
        self._kept_ns_max = kept_ns_max
        self._kept: OrderedDict[object, _Kept] = OrderedDict()
        #: Domains and keys for which hits were given back.
        self._given_back: set[tuple[str, tuple[str, ...]]] = set()
        self._lock = Lock()

    def find(self, request: Request, now_ns: int) -> Decision | None:
        """Return the denial of the request as of now, if it is kept."""
        if not self._kept:
            return None
        with self._lock:
            kept = self._kept.get(request.identity)
            if kept is None:
                return None
            if now_ns >= kept.until_ns:
                del self._kept[request.identity]
                return None
            # A smaller request may fit where a larger request does not.
            if kept.costs != request.costs and any(
                cost < of_kept for cost, of_kept in zip(request.costs, kept.costs, strict=True)
            ):
                return None
            self._kept.move_to_end(request.identity)
        return kept.decision._after(now_ns - kept.sent_ns)

    def keep(self, request: Request, decision: Decision, sent_ns: int) -> None:
        """Keep a denial until its reset or the bound, counted from the moment its call was sent."""
        wait_ns = decision.retry_after_ns
        # A request of 0 hits is denied if one hit does not fit: the denial does not apply to 0 hits themselves.
        if self._max == 0 or not wait_ns or not decision.may_be_kept or 0 in request.costs or request.gives_back:
            return
        with self._lock:
            if self._given_back and not self._given_back.isdisjoint(request.shapes()):
                return
            kept = _Kept(request.costs, decision, sent_ns, sent_ns + min(wait_ns, self._kept_ns_max))
            self._kept[request.identity] = kept
            self._kept.move_to_end(request.identity)
            if len(self._kept) > self._max:
                self._kept.popitem(last=False)

    def end_for(self, request: Request) -> None:
        """Stop keeping denials for the keys of the descriptors that give back."""
        shapes = set(request.shapes_given_back())
        with self._lock:
            if shapes <= self._given_back:
                return
            self._given_back |= shapes
            # Rare: once for each combination of keys.
            self._kept.clear()
