"""Servers that stop, pauses, event loops, failing sources, logs, and the test double."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest

from tests.driver import CLIENTS
from tests.servers import ManualClock, Server, misbehaving, serve
from tidegate import Reason, Tidegate, aio

HUNDRED = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}"


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_call_after_close_is_an_error_of_the_caller(kind: str) -> None:
    with serve(HUNDRED) as server:
        client = CLIENTS[kind](server.address, domain="d", timeout=5)
        assert client.call("limit", {"user": "a"})
        client.call("close")
        client.call("close")
        with pytest.raises(RuntimeError, match="closed"):
            client.call("limit", {"user": "a"})


@contextlib.contextmanager
def stopped(server: Server) -> Iterator[None]:
    """Stop the process of a server: its connections stay, without an answer."""
    server.stop()
    try:
        yield
    finally:
        server.resume()


@pytest.mark.parametrize("kind", CLIENTS)
def test_one_stopped_server_of_two_fails_decisions_for_less_than_two_seconds(kind: str) -> None:
    with serve(HUNDRED) as one, serve(HUNDRED) as other:
        client = CLIENTS[kind]([one.address, other.address], domain="d", timeout=0.5, breaker_open=0.3, local_denials=0)
        for _ in range(20):
            client.call("peek", {"user": "a"}, timeout=5)
        with stopped(one):
            began = time.monotonic()
            failed: list[float] = []
            while time.monotonic() < began + 4:
                if client.call("peek", {"user": "a"}).error is not None:
                    failed.append(time.monotonic() - began)
                time.sleep(0.01)
            assert failed, "the stopped server got no call"
            # Without probes beside the calls, one call in each 0.3 s would fail to the end.
            assert [at for at in failed if at > 2] == []
            assert not client.client._engine.servers.is_open
        deadline = time.monotonic() + 10
        while any(server.breaker.is_open for server in client.client._engine.servers.all):
            assert time.monotonic() < deadline, "the server is not used again"
            client.call("peek", {"user": "a"}, timeout=5)
            time.sleep(0.01)
        client.close()


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_server_that_is_down_is_left_out_while_another_is_connected(kind: str) -> None:
    with serve(HUNDRED) as one, serve(HUNDRED) as other:
        client = CLIENTS[kind]([one.address, other.address], domain="d", timeout=5, local_denials=0)
        for _ in range(20):
            client.call("peek", {"user": "a"})
        one.kill()
        failed = 0
        for _ in range(50):
            failed += client.call("peek", {"user": "a"}).error is not None
        assert failed <= 1, "a call in flight may fail, a later one may not"
        client.close()


def test_an_unavailable_server_is_left_out_before_grpc_reports_the_end_of_its_connection() -> None:
    # Its connection stays, as an ended connection does until gRPC's thread reports the end.
    with misbehaving("unavailable") as one, serve(HUNDRED) as other:
        client = Tidegate([one, other.address], domain="d", timeout=5, local_denials=0, breaker_failures=0)
        deadline = time.monotonic() + 10
        client.peek(user="a")
        while not all(server.is_connected() for server in client._engine.servers.all):
            assert time.monotonic() < deadline, "the servers are not connected"
            time.sleep(0.01)
        began = time.monotonic()
        failed = sum(client.peek(user="a").error is not None for _ in range(100))
        assert failed <= 1 + (time.monotonic() - began) / 0.5
        client.close()


async def test_the_failures_of_one_pause_of_the_process_are_one() -> None:
    with serve(HUNDRED) as server:
        async with aio.Tidegate(server.address, domain="d", timeout=0.05, local_denials=0) as client:
            await client.peek(user="a")

            async def pause() -> None:
                time.sleep(0.2)

            outcomes = await asyncio.gather(*(client.peek(user="a") for _ in range(8)), pause())
            assert sum(outcome.error is not None for outcome in outcomes if outcome) >= 5, "the pause has no effect"
            assert not client._engine.servers.is_open
            assert (await client.peek(user="a", timeout=5)).reason is Reason.DECIDED


def test_a_client_of_asyncio_is_used_by_several_event_loops() -> None:
    with serve(HUNDRED) as server:
        client = aio.Tidegate(server.address, domain="d", timeout=5)
        left = [asyncio.run(client.limit(user="a")).remaining for _ in range(3)]
        assert left == [99, 98, 97]
        with ThreadPoolExecutor(4) as threads:
            decisions = list(threads.map(lambda _: asyncio.run(client.limit(user="a")), range(8)))
        assert sorted(decision.remaining or 0 for decision in decisions) == list(range(89, 97))


def test_the_test_client_of_fastapi_works_without_a_lifespan() -> None:
    from fastapi import Depends, FastAPI
    from fastapi.testclient import TestClient

    from tidegate import keys
    from tidegate.fastapi import limit

    with serve(HUNDRED) as server:
        client = aio.Tidegate(server.address, domain="d")
        app = FastAPI()
        user = keys.header("x-user", entry="user", missing="reject")

        @app.get("/", dependencies=[Depends(limit(client, [user]))])
        async def hello() -> str:
            return "hello"

        application = TestClient(app)
        responses = [application.get("/", headers={"x-user": "a"}) for _ in range(3)]
        assert [response.status_code for response in responses] == [200, 200, 200]
        assert [response.headers["ratelimit"].split(";")[1] for response in responses] == ["r=99", "r=98", "r=97"]


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_source_of_metadata_that_fails_changes_no_decision(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> list[tuple[str, str]]:
        raise RuntimeError("a broken source")

    clock = ManualClock()
    with serve(HUNDRED) as server:
        address = server.address
        client = CLIENTS[kind](address, domain="d", timeout=5, metadata=[broken], breaker_failures=1, clock=clock)
        assert client.call("limit", {"user": "a"}).reason is Reason.DECIDED
        assert "a source of metadata" in caplog.text
        server.kill()
        assert client.call("limit", {"user": "a"}).error is not None
    with serve(HUNDRED, listen=address):
        clock.now_ns += 2_000_000_000
        deadline = time.monotonic() + 10
        # The probe has its permit, although the source fails.
        while client.call("limit", {"user": "a"}).reason is not Reason.DECIDED:
            assert time.monotonic() < deadline, "the permit of the probe is lost"
            clock.now_ns += 2_000_000_000
            time.sleep(0.05)
    client.close()


@pytest.mark.parametrize("on_failure", ["open", "closed"])
def test_decisions_without_an_answer_are_logged_once_a_minute(
    on_failure: Literal["open", "closed"], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "tidegate")
    clock = ManualClock()
    with misbehaving("refused") as address:
        client = Tidegate(address, domain="d", timeout=5, on_failure=on_failure, breaker_failures=0, clock=clock)
        for _ in range(3):
            client.limit(user="a")
        clock.now_ns += 60_000_000_000
        client.limit(user="a")
    first, second = caplog.messages
    assert first.startswith("no answer from the rate limit server (UNAVAILABLE: ")
    assert ("allowed" if on_failure == "open" else "denied") + ", 1 since" in first
    assert second.endswith("3 since the last message")
    with serve(HUNDRED, listen=address):
        deadline = time.monotonic() + 10
        while client.limit(user="a").error is not None:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert caplog.messages[-1] == "the rate limit server answers again"
    client.close()


async def test_the_test_double_decides_as_the_test_says() -> None:
    from tidegate.testing import FakeAioTidegate, FakeTidegate, admitted, denied, failed

    client = FakeTidegate(lambda call: denied(retry_after=30) if call.costs[0] > 5 else admitted(remaining=3))
    assert client.limit(user="ann").remaining == 3
    denial = client.limit({"user": "ann"}, cost=6)
    assert (denial.allowed, denial.retry_after) == (False, 30)
    assert denial.headers()["Retry-After"] == "30"
    client.give_back(user="ann")
    assert [(call.entries, call.costs, call.gives_back) for call in client.calls] == [
        (({"user": "ann"},), (1,), False),
        (({"user": "ann"},), (6,), False),
        (({"user": "ann"},), (1,), True),
    ]
    asynchronous = FakeAioTidegate(failed(is_open=False))
    assert (await asynchronous.limit(user="ann")).reason is Reason.FAILED_CLOSED


def test_a_slot_is_released_once_also_after_an_exception_and_none_without_a_ticket() -> None:
    from tidegate import Slot
    from tidegate.testing import FakeAioTidegate, FakeTidegate, admitted, denied, failed

    client = FakeTidegate(lambda call: admitted(ticket="slot-1") if "user" in call.entries[0] else admitted())
    slot = client.acquire(user="ann", domain="other")

    def fail() -> None:
        with slot:
            slot.release(cost=2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    slot.release()
    releases = [(call.domain, call.entries, call.costs, call.gives_back) for call in client.calls[1:]]
    named = ({"slot": "slot-1"},)
    assert releases == [("other", named, (2,), True), ("other", named, (1,), False)]
    ends: list[tuple[Callable[[Slot], None], int, bool]] = [
        (Slot.release, 40, False),
        (lambda slot: slot.commit(7), 7, False),
        (lambda slot: slot.commit(0), 40, True),
        (Slot.cancel, 40, True),
    ]
    for end, cost, gives_back in ends:
        client = FakeTidegate(admitted(ticket="slot-1", ticket_cost=40))
        with client.acquire(user="ann") as slot:
            end(slot)
            slot.commit(3)
        assert [(call.costs, call.gives_back) for call in client.calls[1:]] == [((cost,), gives_back)]
    for decision in (denied(), failed(), admitted()):
        client = FakeTidegate(decision)
        with client.acquire(user="ann") as slot:
            assert bool(slot) == decision.allowed
        assert len(client.calls) == 1

    async def asynchronous() -> int:
        client = FakeAioTidegate(admitted(ticket="slot-1"))
        slot = await client.acquire(user="ann")
        await slot.release()
        async with client.acquire(user="ann") as slot:
            assert slot.ticket == "slot-1"
        await client.close()
        # The client is closed: logged, and no error of the block.
        async with slot:
            pass
        return len(client.calls)

    assert asyncio.run(asynchronous()) == 4
