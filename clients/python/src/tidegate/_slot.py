"""Slots of limits of requests in flight, and estimates of costs that are known only at the end, as resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, TypeAlias

from tidegate._decision import Decision
from tidegate._request import Descriptor, DescriptorLike

_logger = logging.getLogger("tidegate")

#: The descriptor that releases slots, or ends estimates.
Release: TypeAlias = Descriptor

#: Sends descriptors with a ticket.
Send: TypeAlias = Callable[..., Decision]
AioSend: TypeAlias = Callable[..., Awaitable[Decision]]


class _Held:
    """A decision, and the slots and estimates that its request holds; true if the request is allowed."""

    __slots__ = ("_descriptors", "_is_held", "decision")

    def __init__(
        self, decision: Decision, descriptors: Iterable[DescriptorLike], entries: Mapping[str, str] | None
    ) -> None:
        #: The decision on the request.
        self.decision = decision
        # The request's descriptors, as given to the call: only renewals need them.
        self._descriptors = (descriptors, entries)
        self._is_held = decision.ticket is not None

    @property
    def descriptors(self) -> tuple[DescriptorLike, ...]:
        """The descriptors of the request."""
        descriptors, named = self._descriptors
        return (*([named] if named else []), *descriptors)

    @property
    def ticket(self) -> str | None:
        """The name of the slots and estimates; None if the request holds none."""
        return self.decision.ticket

    def _begin_release(self, cost: int | None) -> Release | None:
        """Return the release of a part, or of everything, with the estimates kept; None if nothing is held."""
        estimate = self.decision.ticket_cost
        return self._begin(estimate, is_end=True) if cost is None else self._begin(cost, give_back=True)

    def _begin_commit(self, cost: int) -> Release | None:
        """Return the end with the actual cost; None if nothing is held."""
        if cost == 0:
            # Zero hits are a peek, which releases no slot.
            return self._begin(self.decision.ticket_cost, give_back=True, is_end=True)
        return self._begin(cost, is_end=True)

    def _begin_renew(self) -> list[Descriptor] | bool:
        """Return the descriptors that renew the slots; without anything to send, whether they are held."""
        ticket = self.decision.ticket
        if ticket is None:
            return self.decision.allowed
        if not self._is_held:
            return False
        given = self.descriptors
        # Zero hits are a peek, which renews nothing.
        return [
            Descriptor((*_entries(one), ("renew", ticket)), cost=1, limit=getattr(one, "limit", None)) for one in given
        ]

    def _begin(self, cost: int, *, give_back: bool = False, is_end: bool = False) -> Release | None:
        ticket = self.decision.ticket
        if ticket is None or not self._is_held:
            return None
        release = Descriptor({"slot": ticket}, cost=cost, give_back=give_back)
        self._is_held = not is_end
        return release

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(decision={self.decision!r}, ticket={self.ticket!r})"


def _entries(descriptor: DescriptorLike) -> Iterable[tuple[str, str]]:
    return descriptor.entries if isinstance(descriptor, Descriptor) else descriptor.items()


class Slot(_Held):
    """The slots of a request in flight: `with client.acquire(user="ann") as slot:` releases them at the end.

    Estimates of costs stay charged then, unless `commit` or `cancel` was called before. A slot is true if the request
    is allowed. One that is denied holds nothing, and releases nothing.
    """

    __slots__ = ("_send",)

    def __init__(
        self,
        decision: Decision,
        send: Send,
        descriptors: Iterable[DescriptorLike],
        entries: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(decision, descriptors, entries)
        self._send = send

    def renew(self) -> bool:
        """Hold the slots and estimates for `max_hold` of their rules from now on; return whether all are held still.

        If not, the request must not go on. Without an answer the policy of the client decides. Nothing is taken. Call
        it each third of `max_hold`, so that a failed renewal can be repeated.
        """
        renewed = self._begin_renew()
        return renewed if isinstance(renewed, bool) else self._send(*renewed).allowed

    def release(self, cost: int | None = None) -> None:
        """Release the slots and keep the estimates, or release `cost` hits of each. A second end does nothing."""
        self._sent(self._begin_release(cost))

    def commit(self, cost: int) -> None:
        """End the request with its actual cost, instead of its estimates. Zero gives them back."""
        self._sent(self._begin_commit(cost))

    def cancel(self) -> None:
        """End the request at no cost."""
        self.commit(0)

    def _sent(self, release: Release | None) -> None:
        if release is None:
            return
        try:
            self._send(release)
        except Exception:
            _log()

    def __enter__(self) -> Slot:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class AioSlot(_Held):
    """The same for asyncio: `async with client.acquire(user="ann") as slot:`."""

    __slots__ = ("_send",)

    def __init__(
        self,
        decision: Decision,
        send: AioSend,
        descriptors: Iterable[DescriptorLike],
        entries: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(decision, descriptors, entries)
        self._send = send

    async def renew(self) -> bool:
        """Hold the slots and estimates for `max_hold` of their rules from now on; return whether all are held still.

        If not, the request must not go on. Without an answer the policy of the client decides. Nothing is taken. Call
        it each third of `max_hold`, so that a failed renewal can be repeated.
        """
        renewed = self._begin_renew()
        return renewed if isinstance(renewed, bool) else (await self._send(*renewed)).allowed

    async def release(self, cost: int | None = None) -> None:
        """Release the slots and keep the estimates, or release so many hits of each. A second end does nothing.

        A task that is cancelled meanwhile still sends the release.
        """
        await self._shielded(self._begin_release(cost))

    async def commit(self, cost: int) -> None:
        """End the request with its actual cost, instead of its estimates. Zero gives them back."""
        await self._shielded(self._begin_commit(cost))

    async def cancel(self) -> None:
        """End the request at no cost."""
        await self.commit(0)

    async def _shielded(self, release: Release | None) -> None:
        if release is not None:
            await asyncio.shield(asyncio.ensure_future(self._sent(release)))

    async def _sent(self, release: Release) -> None:
        try:
            await self._send(release)
        except Exception:
            _log()

    async def __aenter__(self) -> AioSlot:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


_releasing: set[asyncio.Task[None]] = set()


async def unless_cancelled(call: Coroutine[Any, Any, AioSlot]) -> AioSlot:
    """Await the call for a slot; a task that is cancelled meanwhile keeps none.

    The server may have admitted the call: it goes on, and its slot is released.
    """
    deciding = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(deciding)
    except asyncio.CancelledError:

        async def release() -> None:
            slot = (await asyncio.gather(deciding, return_exceptions=True))[0]
            if isinstance(slot, AioSlot):
                await slot.release()

        # The event loop has only weak references to tasks.
        task = asyncio.ensure_future(release())
        _releasing.add(task)
        task.add_done_callback(_releasing.discard)
        raise


class Acquiring:
    """A call for slots: awaited, or entered by `async with`."""

    __slots__ = ("_call", "_slot")

    def __init__(self, call: Callable[[], Coroutine[Any, Any, AioSlot]]) -> None:
        self._call = call
        self._slot: AioSlot | None = None

    def __await__(self) -> Generator[object, None, AioSlot]:
        return unless_cancelled(self._call()).__await__()

    async def __aenter__(self) -> AioSlot:
        self._slot = await unless_cancelled(self._call())
        return self._slot

    async def __aexit__(self, *_: object) -> None:
        if self._slot is not None:
            await self._slot.release()


def _log() -> None:
    _logger.warning("the end of a request is lost: its slots and estimates end after max_hold", exc_info=True)
