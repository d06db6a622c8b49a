"""Both clients behind one blocking interface, so that each case runs on both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tidegate import Decision, Tidegate
from tidegate import aio as tidegate_aio


class Client(Protocol):
    """The client as cases call it."""

    client: Any

    def call(self, op: str, *descriptors: Any, **options: Any) -> Decision: ...

    def acquire(self, *descriptors: Any, **options: Any) -> Any: ...

    def release(self, slot: Any, cost: int | None) -> None: ...

    def renew(self, slot: Any) -> bool: ...

    def commit(self, slot: Any, cost: int) -> None: ...

    def cancel(self, slot: Any) -> None: ...

    def end(self, slot: Any) -> None: ...

    def close(self) -> None: ...


class SyncClient:
    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        self.client: Any = Tidegate(address, **options)

    def call(self, op: str, *descriptors: Any, **options: Any) -> Decision:
        decision: Decision = getattr(self.client, op)(*descriptors, **options)
        return decision

    def acquire(self, *descriptors: Any, **options: Any) -> Any:
        return self.client.acquire(*descriptors, **options).__enter__()

    def release(self, slot: Any, cost: int | None) -> None:
        slot.release(cost)

    def renew(self, slot: Any) -> bool:
        return bool(slot.renew())

    def commit(self, slot: Any, cost: int) -> None:
        slot.commit(cost)

    def cancel(self, slot: Any) -> None:
        slot.cancel()

    def end(self, slot: Any) -> None:
        slot.__exit__(None, None, None)

    def close(self) -> None:
        self.client.close()


class AioClient:
    def __init__(self, address: str | Sequence[str], **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.client: Any = tidegate_aio.Tidegate(address, **options)

    def call(self, op: str, *descriptors: Any, **options: Any) -> Decision:
        decision: Decision = self._runner.run(getattr(self.client, op)(*descriptors, **options))
        return decision

    def acquire(self, *descriptors: Any, **options: Any) -> Any:
        return self._runner.run(self.client.acquire(*descriptors, **options).__aenter__())

    def release(self, slot: Any, cost: int | None) -> None:
        self._runner.run(slot.release(cost))

    def renew(self, slot: Any) -> bool:
        return bool(self._runner.run(slot.renew()))

    def commit(self, slot: Any, cost: int) -> None:
        self._runner.run(slot.commit(cost))

    def cancel(self, slot: Any) -> None:
        self._runner.run(slot.cancel())

    def end(self, slot: Any) -> None:
        self._runner.run(slot.__aexit__(None, None, None))

    def close(self) -> None:
        self._runner.run(self.client.close())
        self._runner.close()


CLIENTS: dict[str, Callable[..., Client]] = {"sync": SyncClient, "aio": AioClient}
