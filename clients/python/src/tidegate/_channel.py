"""Channels: addresses, keep-alive, reconnection."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final, TypeAlias

Options: TypeAlias = list[tuple[str, str | int]]

#: One connection for each address, kept alive while idle, and reconnected within a second.
_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", "tidegate-python"),
)


def options(connect_timeout: float, of_caller: Sequence[tuple[str, str | int]]) -> Options:
    """Return the options of a channel; those of the caller replace others."""
    # In spite of its name the timeout of one attempt to connect. Attempts repeat after the backoffs above.
    connect_ms = max(1_000, int(connect_timeout * 1_000))
    return [*_OPTIONS, ("grpc.min_reconnect_backoff_ms", connect_ms), *of_caller]


def target(address: str | Sequence[str]) -> str:
    """Return the gRPC target of one address, or of several IP addresses.

    >>> target(["192.0.2.1:8081", "192.0.2.2:8081"])
    'ipv4:192.0.2.1:8081,192.0.2.2:8081'
    """
    if isinstance(address, str):
        return address
    if len(address) == 1:
        return address[0]
    versions = set()
    for one in address:
        host, _, _ = one.rpartition(":")
        try:
            versions.add(ipaddress.ip_address(host.strip("[]")).version)
        except ValueError:
            raise ValueError(
                f"address {one!r} among several is no IP address with a port; "
                "use IP addresses, or one DNS name that resolves to all of them"
            ) from None
    if len(versions) != 1:
        raise ValueError("addresses are IPv4 or IPv6, not both; use one kind, or one DNS name")
    return f"ipv{versions.pop()}:" + ",".join(address)
