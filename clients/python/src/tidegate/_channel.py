"""Channels: addresses, keep-alive, reconnection."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Final

#: One connection for each address, kept alive while idle, and reconnected within a second.
OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.service_config", '{"loadBalancingConfig": [{"round_robin": {}}]}'),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", "tidegate-python"),
)


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
