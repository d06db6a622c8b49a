"""Channels: addresses, keep-alive, reconnection."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final, TypeAlias

#: A name or an IPv4 address with a port, an IPv6 address in brackets with a port, or a target with a scheme. Of these,
#: `dns:` needs a port as well.
_TARGET: Final = re.compile(
    r"(dns:(//[^/]*/)?)?([^\[\]:/]+|\[[\da-fA-F:.%\w]+\]):\d+$|(?!dns:|[\da-f]*:[\da-f:.]*$)[a-z][a-z\d+.-]*:(?!\d+$).+"
)

#: A target with one address.
_ONE_ADDRESS: Final = re.compile(r"(ipv4:)?\d+(\.\d+){3}:\d+$|(ipv6:)?\[[^\]]*\]:\d+$|unix(-abstract)?:")

Options: TypeAlias = list[tuple[str, str | int]]

#: Connections to all addresses of a name. An address that accepts connections but fails most calls is left out for a
#: minute. That takes three calls in half a second, half of which fail.
_SERVICE_CONFIG: Final = json.dumps(
    {
        "loadBalancingConfig": [
            {
                "outlier_detection_experimental": {
                    "interval": "0.5s",
                    "baseEjectionTime": "60s",
                    "maxEjectionTime": "60s",
                    "maxEjectionPercent": 50,
                    "failurePercentageEjection": {
                        "threshold": 50,
                        "enforcementPercentage": 100,
                        "minimumHosts": 2,
                        "requestVolume": 3,
                    },
                    "childPolicy": [{"round_robin": {}}],
                }
            }
        ]
    }
)

#: One connection for each address, kept alive while idle, and reconnected within a second.
_OPTIONS: Final[tuple[tuple[str, str | int], ...]] = (
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # Never. gRPC would disconnect after 30 minutes without a call, and the next call would have to connect within its
    # timeout.
    ("grpc.client_idle_timeout_ms", 2_147_483_647),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.primary_user_agent", "tidegate-python"),
)


def options(connect_timeout: float, of_caller: Sequence[tuple[str, str | int]]) -> Options:
    """Return the options of a channel; the caller's options replace others."""
    # Despite its name the timeout of one attempt to connect. Attempts repeat after the backoffs above.
    connect_ms = max(1_000, int(connect_timeout * 1_000))
    return [*_OPTIONS, ("grpc.min_reconnect_backoff_ms", connect_ms), *of_caller]


def targets(address: str | Sequence[str]) -> tuple[str, ...]:
    """Return the gRPC target of each address.

    >>> targets(["192.0.2.1:8081", "limits.example:8081"])
    ('192.0.2.1:8081', 'limits.example:8081')
    """
    addresses = (address,) if isinstance(address, str) else tuple(address)
    if not addresses:
        raise ValueError("no address; use at least one, such as 127.0.0.1:8081")
    for one in addresses:
        # gRPC takes 443 for a missing port.
        if not _TARGET.match(one):
            raise ValueError(f"address {one!r} has no port; write host:port, such as {_with_port(one)}")
    return addresses


def may_have_several_addresses(target: str) -> bool:
    """Return whether a target is a name, or a list of addresses.

    >>> [may_have_several_addresses(one) for one in ("limits.example:8081", "127.0.0.1:8081", "unix:/run/tidegate")]
    [True, False, False]
    """
    return not _ONE_ADDRESS.match(target)


def _with_port(host: str) -> str:
    return f"[{host.strip('[]')}]:8081" if ":" in host else f"{host or '127.0.0.1'}:8081"
