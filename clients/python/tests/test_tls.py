"""TLS and mTLS against a server that requires client certificates."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
import trustme

from tests.driver import CLIENTS
from tests.servers import Server, serve
from tidegate import Decision, Reason

RULES = "{domain: d, descriptors: [{key: user, rate_limit: {unit: day, requests_per_unit: 100}}]}"


@contextmanager
def serve_with_tls(
    authority: trustme.CA,
    folder: Path,
    names: tuple[str, ...] = ("localhost", "127.0.0.1"),
    listen: str = "127.0.0.1:0",
) -> Iterator[Server]:
    """Start a server that requires certificates of the authority."""
    certificate, key, clients = folder / "server.crt", folder / "server.key", folder / "clients.crt"
    issued = authority.issue_cert(*names)
    issued.cert_chain_pems[0].write_to_path(certificate)
    issued.private_key_pem.write_to_path(key)
    authority.cert_pem.write_to_path(clients)
    key.chmod(0o600)
    files = ("--tls-cert", str(certificate), "--tls-key", str(key), "--tls-client-ca", str(clients))
    with serve(RULES, *files, listen=listen) as server:
        yield server


@pytest.mark.parametrize("kind", CLIENTS)
def test_certificates_of_both_sides_are_verified(kind: str, tmp_path: Path) -> None:
    authority, other = trustme.CA(), trustme.CA()

    def credentials(roots: trustme.CA, issuer: trustme.CA | None) -> grpc.ChannelCredentials:
        if issuer is None:
            return grpc.ssl_channel_credentials(roots.cert_pem.bytes())
        own = issuer.issue_cert("client.example")
        return grpc.ssl_channel_credentials(
            roots.cert_pem.bytes(), own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
        )

    with serve_with_tls(authority, tmp_path) as server:

        def decide(credentials: grpc.ChannelCredentials | None) -> Decision:
            client = CLIENTS[kind](server.address, domain="d", timeout=5, credentials=credentials)
            decision = client.call("limit", {"user": "a"})
            client.close()
            return decision

        verified = decide(credentials(authority, authority))
        assert (verified.reason, verified.remaining) == (Reason.DECIDED, 99)
        untrusted = decide(credentials(other, authority))
        assert (untrusted.reason, untrusted.error) == (Reason.FAILED_OPEN, "UNAVAILABLE")
        assert "CERTIFICATE_VERIFY_FAILED" in (untrusted.error_message or "")
        for refused in (
            credentials(authority, other),
            credentials(authority, None),
            None,
        ):
            decision = decide(refused)
            assert (decision.reason, decision.error) == (Reason.FAILED_OPEN, "UNAVAILABLE")


@pytest.mark.parametrize("kind", CLIENTS)
def test_each_of_several_servers_is_verified_by_its_own_name(kind: str, tmp_path: Path) -> None:
    authority = trustme.CA()
    own = authority.issue_cert("client.example")
    credentials = grpc.ssl_channel_credentials(
        authority.cert_pem.bytes(), own.private_key_pem.bytes(), own.cert_chain_pems[0].bytes()
    )
    with ExitStack() as stack:

        def server(host: str, certified: str) -> str:
            folder = tmp_path / f"{host}-{certified}"
            folder.mkdir()
            return stack.enter_context(serve_with_tls(authority, folder, (certified,), f"{host}:0")).address

        addresses = [server("127.0.0.1", "127.0.0.1"), server("127.0.0.2", "127.0.0.2")]
        client = CLIENTS[kind](addresses, domain="d", timeout=5, credentials=credentials)
        for name in addresses:
            alone = CLIENTS[kind](name, domain="d", timeout=5, credentials=credentials)
            assert alone.call("limit", {"user": "alone"}).reason == Reason.DECIDED
            alone.close()
        decisions, deadline = [client.call("limit", {"user": "a"})], time.monotonic() + 5
        # The second server is called once gRPC has reported that it is connected.
        while decisions[-1].remaining != 99 or len(decisions) == 1:
            assert time.monotonic() < deadline, "one server decided all"
            time.sleep(0.05)
            decisions.append(client.call("limit", {"user": "a"}))
        client.close()
        assert all(decision.reason == Reason.DECIDED for decision in decisions)

        stranger = CLIENTS[kind](server("127.0.0.3", "127.0.0.1"), domain="d", timeout=5, credentials=credentials)
        assert stranger.call("limit", {"user": "a"}).reason == Reason.FAILED_OPEN
        stranger.close()
