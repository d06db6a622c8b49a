"""Slots of limits of requests in flight, as resources."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from typing import TypeAlias

from tidegate._decision import Decision
from tidegate._request import Descriptor

_logger = logging.getLogger("tidegate")

#: The descriptor that releases slots.
Release: TypeAlias = Descriptor


class _Held:
    """A decision, and the slots that its request holds; true if the request is allowed."""

    __slots__ = ("_is_held", "decision")

    def __init__(self, decision: Decision) -> None:
        #: The decision on the request.
        self.decision = decision
        self._is_held = decision.ticket is not None

    @property
    def ticket(self) -> str | None:
        """What names the slots; None if the request holds none."""
        return self.decision.ticket

    def _begin_release(self, cost: int | None) -> Release | None:
        """Return the release to send; None if there is nothing to release."""
        ticket = self.decision.ticket
        if ticket is None or not self._is_held:
            return None
        release = Descriptor({"slot": ticket}, cost=1 if cost is None else cost, give_back=cost is not None)
        self._is_held = cost is not None
        return release

    def __bool__(self) -> bool:
        return self.decision.allowed

    def __repr__(self) -> str:
        return f"{type(self).__name__}(decision={self.decision!r}, ticket={self.ticket!r})"


class Slot(_Held):
    """The slots of a request in flight: `with client.acquire(user="ann") as slot:` releases them at the end.

    A slot is true if the request is allowed. One that is denied holds nothing, and releases nothing.
    """

    __slots__ = ("_send",)

    def __init__(self, decision: Decision, send: Callable[[Release], object]) -> None:
        super().__init__(decision)
        self._send = send

    def release(self, cost: int | None = None) -> None:
        """Release the slots, or so many hits of each. A second release of all does nothing."""
        release = self._begin_release(cost)
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

    def __init__(self, decision: Decision, send: Callable[[Release], Awaitable[object]]) -> None:
        super().__init__(decision)
        self._send = send

    async def release(self, cost: int | None = None) -> None:
        """Release the slots, or so many hits of each. A second release of all does nothing.

        A task that is cancelled meanwhile still sends the release.
        """
        release = self._begin_release(cost)
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


class Acquiring:
    """A call for slots: awaited, or entered by `async with`."""

    __slots__ = ("_call", "_slot")

    def __init__(self, call: Callable[[], Awaitable[AioSlot]]) -> None:
        self._call = call
        self._slot: AioSlot | None = None

    def __await__(self) -> Generator[object, None, AioSlot]:
        return self._call().__await__()

    async def __aenter__(self) -> AioSlot:
        self._slot = await self._call()
        return self._slot

    async def __aexit__(self, *_: object) -> None:
        if self._slot is not None:
            await self._slot.release()


def _log() -> None:
    _logger.warning("a slot was not released: the server frees it after max_hold", exc_info=True)
