"""Real servers in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc

REPOSITORY = Path(__file__).resolve().parents[3]
CASES = REPOSITORY / "clients/conformance/cases"
BINARY = Path(os.environ.get("TIDEGATE_BIN", REPOSITORY / "target/debug/tidegate"))


def cases(name: str, key: str = "cases") -> list[Any]:
    """Read the cases of a file."""
    loaded: list[Any] = json.loads((CASES / f"{name}.json").read_text())[key]
    return loaded


def nanos(time: list[int] | None) -> int | None:
    """Return the nanoseconds of a time in a case."""
    return None if time is None else time[0] * 1_000_000 + time[1]


class Server:
    """A process that logs its address as JSON, once it serves."""

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        log = []
        self.address = ""
        for line in self._process.stderr:
            log.append(line)
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if event["message"] == "listening":
                self.address = event["address"]
            elif event["message"] == "serving":
                break
        else:
            raise AssertionError(f"the server does not serve: {log}")

    def stop(self) -> None:
        """Suspend the process."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        assert self._process.stderr is not None
        self._process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._process.poll() is None:
            self.kill()


@contextmanager
def serve(rules: str, *arguments: str, listen: str = "127.0.0.1:0") -> Iterator[Server]:
    """Start `tidegate serve` with rules."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(rules)
        file.flush()
        command = ["serve", "--rules", file.name, "--listen", listen, "--log-format", "json"]
        with Server(BINARY, *command, *arguments) as server:
            yield server


@contextmanager
def misbehaving(fault: str) -> Iterator[str]:
    """Start a server with a fault; the address."""
    if fault == "refused":
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            yield f"127.0.0.1:{unused.getsockname()[1]}"
    else:
        with Server(BINARY.parent / "faulty-server", fault) as server:
            yield server.address


class TestClock:
    """Sets the clock of a server with `--test-clock`."""

    __test__ = False

    def __init__(self, address: str) -> None:
        from google.protobuf.timestamp_pb2 import Timestamp
        from google.protobuf.wrappers_pb2 import BytesValue

        self._timestamp = Timestamp
        # SetRequest { Timestamp now = 1; } has the shape of BytesValue { bytes value = 1; }.
        self._message = BytesValue
        self._channel = grpc.insecure_channel(address)
        self._set = self._channel.unary_unary(
            "/tidegate.test.v1.Clock/Set",
            request_serializer=BytesValue.SerializeToString,
            response_deserializer=BytesValue.FromString,
        )

    def set(self, unix_ns: int) -> None:
        """Move the clock forward."""
        now = self._timestamp(seconds=unix_ns // 10**9, nanos=unix_ns % 10**9)
        self._set(self._message(value=now.SerializeToString()), timeout=5)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


class ManualClock:
    """A client's clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now_ns
