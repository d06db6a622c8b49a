"""Measure the client beside the bare gRPC stub, for `cargo xtask clients --bench`.

The server at TIDEGATE_ADDR has the domain `bench` with a key `admitted`, which is never denied, and a key `denied`,
which always is after its first hit. The clients are the blocking one for sequential calls and local denials, and that
of asyncio for concurrent ones.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from tidegate import Reason, Tidegate, aio
from tidegate._engine import METHOD
from tidegate._proto import rls_pb2 as pb

ROUNDS = 10
SEQUENTIAL_CALLS = 200
CALLERS = 64
CALLS_PER_CALLER = 15
LOCAL_DENIALS = 2_000
TIMEOUT = 5.0
ADDRESS = os.environ["TIDEGATE_ADDR"]


def request() -> pb.RateLimitRequest:
    descriptor = pb.RateLimitDescriptor(entries=[pb.RateLimitDescriptor.Entry(key="admitted", value=b"alice")])
    return pb.RateLimitRequest(domain="bench", descriptors=[descriptor])


def sequential() -> tuple[float, float]:
    """Return the median times of sequential calls in microseconds, each of its best round."""
    channel = grpc.insecure_channel(ADDRESS)
    method = channel.unary_unary(
        METHOD,
        request_serializer=pb.RateLimitRequest.SerializeToString,
        response_deserializer=pb.RateLimitResponse.FromString,
    )
    client = Tidegate(ADDRESS, domain="bench", timeout=TIMEOUT)

    def stub() -> None:
        response = method(request(), timeout=TIMEOUT, metadata=(("tidegate-precision", "exact"),))
        assert response.overall_code == pb.RateLimitResponse.OK

    def ours() -> None:
        decision = client.limit(admitted="alice")
        assert decision.allowed
        assert decision.reason is Reason.DECIDED

    medians: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, own_medians in zip((stub, ours), medians, strict=True):
            times = []
            for _ in range(SEQUENTIAL_CALLS):
                started = time.perf_counter_ns()
                call()
                times.append(time.perf_counter_ns() - started)
            own_medians.append(statistics.median(times) / 1e3)
    client.close()
    channel.close()
    return min(medians[0]), min(medians[1])


async def concurrent() -> tuple[float, float]:
    """Return the numbers of calls per second, each of its best round."""
    channel = grpc.aio.insecure_channel(ADDRESS)
    method = channel.unary_unary(
        METHOD,
        request_serializer=pb.RateLimitRequest.SerializeToString,
        response_deserializer=pb.RateLimitResponse.FromString,
    )
    client = aio.Tidegate(ADDRESS, domain="bench", timeout=TIMEOUT)

    async def stub() -> None:
        response = await method(request(), timeout=TIMEOUT, metadata=(("tidegate-precision", "exact"),))
        assert response.overall_code == pb.RateLimitResponse.OK

    async def ours() -> None:
        decision = await client.limit(admitted="alice")
        assert decision.allowed
        assert decision.reason is Reason.DECIDED

    async def repeat(call: Callable[[], Awaitable[None]]) -> None:
        for _ in range(CALLS_PER_CALLER):
            await call()

    await asyncio.gather(stub(), ours())
    rates: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for call, own_rates in zip((stub, ours), rates, strict=True):
            started = time.perf_counter()
            await asyncio.gather(*(repeat(call) for _ in range(CALLERS)))
            own_rates.append(CALLERS * CALLS_PER_CALLER / (time.perf_counter() - started))
    await client.close()
    await channel.close()
    return max(rates[0]), max(rates[1])


def local_denial() -> float:
    """Return the time of a denial without a call, in microseconds: the least mean of a round."""
    with Tidegate(ADDRESS, domain="bench", timeout=TIMEOUT) as client:
        while client.limit(denied="alice"):
            pass
        times = []
        for _ in range(ROUNDS):
            started = time.perf_counter_ns()
            for _ in range(LOCAL_DENIALS):
                decision = client.limit(denied="alice")
            times.append(time.perf_counter_ns() - started)
            assert decision.reason is Reason.DENIED_LOCALLY
    return min(times) / 1e3 / LOCAL_DENIALS


if __name__ == "__main__":
    stub_p50_us, client_p50_us = sequential()
    stub_per_s, client_per_s = asyncio.run(concurrent())
    print(
        json.dumps(
            {
                "stub_p50_us": stub_p50_us,
                "client_p50_us": client_p50_us,
                "stub_per_s": stub_per_s,
                "client_per_s": client_per_s,
                "local_denial_us": local_denial(),
            }
        )
    )
