"""Limits in this process: they count as the server does, and decide requests without an answer."""

from __future__ import annotations

import random
import socket
from types import SimpleNamespace

import flask
import pytest

from tests.driver import CLIENTS
from tests.servers import TestClock, serve
from tidegate import Reason, Tidegate, keys
from tidegate.flask import RateLimit
from tidegate.local import LocalLimit
from tidegate.testing import FakeTidegate, counting

RULES = """
domain: d
descriptors:
  - key: bucket
    rate_limit: {name: bucket, per: 7s, requests_per_unit: 5, algorithm: token_bucket}
  - key: window
    rate_limit: {name: window, per: 10s, requests_per_unit: 4, algorithm: fixed_window}
"""
LIMITS = [
    LocalLimit(["bucket"], 5, per=7, name="bucket"),
    LocalLimit(["window"], 4, per=10, algorithm="fixed_window", name="window"),
]


@pytest.mark.parametrize("seed", range(4))
def test_a_counting_fake_decides_as_the_server_does(seed: int) -> None:
    chance, now_ns = random.Random(seed), 1_700_006_400_000_000_000
    with serve(RULES, "--test-clock") as server:
        clock = TestClock(server.address)
        client = Tidegate(server.address, domain="d", timeout=5, local_denials=0)
        fake = FakeTidegate(counting(LIMITS, clock=lambda: now_ns))
        for number in range(150):
            now_ns += chance.choice((0, 1, 333_333_333, 1_400_000_000, 2_999_999_999, 12_000_000_000))
            clock.set(now_ns)
            some = chance.choice(
                ([{"bucket": "a"}], [{"window": "a"}], [{"bucket": "b"}, {"window": "b"}], [{"none": "a"}])
            )
            cost = chance.choice((1, 1, 2, 3, 6))
            operation = chance.choice(("limit", "limit", "limit", "limit", "peek", "give_back"))
            options = {} if operation == "peek" else {"cost": cost}
            real, local = (getattr(one, operation)(*some, **options) for one in (client, fake))
            where = f"seed {seed}, step {number}: {operation} {some} {options}\n{real.statuses}\n{local.statuses}"
            assert real.allowed == local.allowed, where
            assert real.retry_after_ns == local.retry_after_ns, where
            for one, other in zip(real.statuses, local.statuses, strict=True):
                assert (one.over_limit, one.remaining) == (other.over_limit, other.remaining), where
                assert (one.limit and one.limit.name) == (other.limit and other.limit.name), where
                if operation != "give_back":
                    assert one.reset_after_ns == other.reset_after_ns, where
        client.close()
        clock.close()


def test_a_clock_that_steps_back_ends_no_window() -> None:
    now_ns = 1_700_006_400_000_000_000
    client = FakeTidegate(counting(LIMITS, clock=lambda: now_ns))
    for step_ns in (0, -1, -20_000_000_000):
        now_ns += step_ns
        allowed = [client.limit(window="a").allowed for _ in range(6)]
        assert allowed == [step_ns == 0] * 4 + [False] * 2


@pytest.mark.parametrize("kind", CLIENTS)
def test_limits_of_the_fallback_need_no_wall_clock_after_the_start(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wall_ns, monotonic_ns = 1_700_006_401_000_000_000, 5_000_000_000
    monkeypatch.setattr(
        "tidegate.local.time", SimpleNamespace(time_ns=lambda: wall_ns, monotonic_ns=lambda: monotonic_ns)
    )
    client = CLIENTS[kind](unused(), domain="d", timeout=5, fallback=LIMITS)

    def allowed(key: str) -> list[bool]:
        return [client.call("limit", {key: "a"}).allowed for _ in range(6)]

    assert allowed("window") == [True] * 4 + [False] * 2
    assert allowed("bucket") == [True] * 5 + [False]
    wall_ns -= 3_600_000_000_000
    assert allowed("window") == [False] * 6
    monotonic_ns += 7_000_000_000
    assert allowed("window") == [False] * 6
    assert allowed("bucket") == [True] * 5 + [False]
    monotonic_ns += 2_000_000_000
    assert allowed("window") == [True] * 4 + [False] * 2
    client.close()


def unused() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{one.getsockname()[1]}"


@pytest.mark.parametrize("kind", CLIENTS)
def test_a_fallback_limits_requests_without_an_answer(kind: str) -> None:
    client = CLIENTS[kind](unused(), domain="d", timeout=5, fallback=[LocalLimit(["user"], 2, per=3600)])
    decisions = [client.call("limit", {"user": "a"}) for _ in range(3)]
    assert [(one.allowed, one.reason, one.remaining) for one in decisions] == [
        (True, Reason.FAILED_OPEN, 1),
        (True, Reason.FAILED_OPEN, 0),
        (False, Reason.FAILED_CLOSED, 0),
    ]
    assert decisions[2].error is not None
    assert 1700 <= (decisions[2].retry_after or 0) <= 1800
    assert client.call("limit", {"user": "b"}).allowed
    assert client.call("limit", {"team": "a"}).remaining is None, "not of the fallback"
    client.close()


def test_a_denial_of_the_fallback_is_answered_as_one_of_the_server() -> None:
    client = Tidegate(unused(), domain="d", timeout=5, fallback=[LocalLimit(["route"], 1, per=60)])
    app = flask.Flask(__name__)
    RateLimit(app, client=client, keys=[keys.constant("route", "all")])
    app.add_url_rule("/", view_func=lambda: "hello")
    assert [app.test_client().get("/").status_code for _ in range(2)] == [200, 429]


def test_a_local_limit_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="keys is empty or a str"):
        LocalLimit("user", 1, per=1)
    with pytest.raises(ValueError, match="more than 0"):
        LocalLimit(["user"], 0, per=1)
    with pytest.raises(ValueError, match="sliding"):
        LocalLimit(["user"], 1, per=1, algorithm="sliding")  # type: ignore[arg-type]
