#!/usr/bin/env python3
"""Measures the CPU time that a running server takes for each byte received, by kinds of requests.

    tidegate serve --rules benches/cost_per_byte.yaml --listen 127.0.0.1:8081 --threads 1 &
    python3 benches/cost_per_byte.py 8081 $!

CPU time is that of the threads of the server (Linux, schedstat). Bytes are all that the client sends after its first request.
"""

import gzip
import random
import socket
import statistics
import struct
import sys
from pathlib import Path

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
END_STREAM = ACK = 1
END_HEADERS = INITIAL_WINDOW_SIZE = 4
FRAME_BYTES = 16_384
ROUNDS = 3


def varint(number):
    low, rest = number & 127, number >> 7
    return bytes([low]) if rest == 0 else bytes([low | 128]) + varint(rest)


def field(number, content):
    """A field of protobuf with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def message(value):
    """A RateLimitRequest with the entry `user`."""
    entry = field(1, b"user") + field(2, value)
    return field(1, b"shop") + field(2, field(1, entry))


def framed(content, is_compressed=False):
    return bytes([is_compressed]) + struct.pack(">I", len(content)) + content


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


class Connection:
    """An HTTP/2 connection for calls of one method, whose header fields are in the dynamic table from the second call on."""

    def __init__(self, port, fields):
        self.fields = [
            (b":path", b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"),
            (b":authority", b"localhost"),
            (b"content-type", b"application/grpc"),
            (b"te", b"trailers"),
            *fields,
        ]
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.received = b""
        self.stream, self.sent, self.ended = 1, 0, 0
        self.window, self.initial_window, self.windows = 65_535, 65_535, {}
        self.has_settings = False
        # Wide enough for all responses.
        windows = frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, 2**30))
        windows += frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", 2**30))
        self.socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + windows)
        self.read_until(lambda: self.has_settings)

    def header_block(self):
        count = len(self.fields)
        if self.stream > 1:
            return b"\x83\x86" + bytes(0x80 | 62 + count - 1 - index for index in range(count))
        text = lambda octets: bytes([len(octets)]) + octets  # below 127 octets
        return b"\x83\x86" + b"".join(b"\x40" + text(name) + text(value) for name, value in self.fields)

    def call(self, bodies):
        """Sends the calls at once, as far as flow control allows, and reads until all have ended."""
        end, out = self.ended + len(bodies), []
        for body in bodies:
            stream = self.stream
            self.windows[stream] = self.initial_window
            out.append(frame(HEADERS, END_HEADERS, stream, self.header_block()))
            self.stream += 2
            while body:
                room = min(FRAME_BYTES, self.window, self.windows[stream])
                if room <= 0:
                    self.send(out)
                    out = []
                    self.read_until(lambda: min(self.window, self.windows[stream]) > 0)
                    continue
                part, body = body[:room], body[room:]
                self.window -= len(part)
                self.windows[stream] -= len(part)
                out.append(frame(DATA, 0 if body else END_STREAM, stream, part))
        self.send(out)
        self.read_until(lambda: self.ended >= end)
        self.windows.clear()

    def send(self, frames):
        octets = b"".join(frames)
        self.sent += len(octets)
        self.socket.sendall(octets)

    def read_until(self, is_reached):
        while not is_reached():
            while len(self.received) >= 9 and len(self.received) >= 9 + int.from_bytes(self.received[:3]):
                length = int.from_bytes(self.received[:3])
                kind, flags, stream = self.received[3], self.received[4], int.from_bytes(self.received[5:9])
                payload, self.received = self.received[9 : 9 + length], self.received[9 + length :]
                self.take(kind, flags, stream, payload)
            if not is_reached():
                octets = self.socket.recv(1 << 18)
                if not octets:
                    sys.exit("the server closed the connection")
                self.received += octets

    def take(self, kind, flags, stream, payload):
        if kind == SETTINGS and not flags & ACK:
            for at in range(0, len(payload), 6):
                name, value = struct.unpack(">HI", payload[at : at + 6])
                self.initial_window = value if name == INITIAL_WINDOW_SIZE else self.initial_window
            self.has_settings = True
            self.socket.sendall(frame(SETTINGS, ACK, 0, b""))
        elif kind == WINDOW_UPDATE and stream == 0:
            self.window += int.from_bytes(payload)
        elif kind == WINDOW_UPDATE and stream in self.windows:
            self.windows[stream] += int.from_bytes(payload)
        elif kind == PING and not flags & ACK:
            self.socket.sendall(frame(PING, ACK, 0, payload))
        elif kind in (GOAWAY, RST_STREAM):
            sys.exit(f"the server refuses the load: frame {kind} {payload!r}")
        elif kind in (DATA, HEADERS) and flags & END_STREAM:
            self.ended += 1


def cpu_ns(pid):
    threads = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(thread.read_text().split()[0]) for thread in threads)


def ns_per_byte(port, pid, bodies, total_bytes, at_once, fields):
    connection = Connection(port, fields)
    connection.call(bodies[:at_once])
    connection.sent, before, at = 0, cpu_ns(pid), 0
    while connection.sent < total_bytes:
        connection.call([bodies[(at + index) % len(bodies)] for index in range(at_once)])
        at += at_once
    return (cpu_ns(pid) - before) / connection.sent


def main():
    port, pid = int(sys.argv[1]), int(sys.argv[2])
    seeded = random.Random(1)

    def values(alphabet, length, number):
        return [framed(message(bytes(seeded.choices(alphabet, k=length)))) for _ in range(number)]

    text, no_text = b"abcdefghijklmnopqrstuvwxyz0123456789/?=&", b"\xff\xfe\x80\xc0"
    mebibyte = gzip.compress(message(b"x" * (2**20 - 64)))
    rows = [
        # Name, bodies, bytes to send, calls at once, further header fields.
        ("100 B", values(text, 100, 500), 60e6, 90, []),
        ("10 B", values(text, 10, 500), 30e6, 90, []),
        ("2 KiB", values(text, 2 << 10, 50), 150e6, 90, []),
        ("8 KiB", values(text, 8 << 10, 50), 200e6, 32, []),
        ("60 KiB", values(text, 60 << 10, 20), 300e6, 8, []),
        ("100 B, no UTF-8", values(no_text, 100, 500), 20e6, 90, []),
        ("2 KiB, no UTF-8", values(no_text, 2 << 10, 50), 60e6, 90, []),
        ("60 KiB, no UTF-8", values(no_text, 60 << 10, 20), 300e6, 8, []),
        ("1 MiB by gzip", [framed(mebibyte, True)], 10e6, 90, [(b"grpc-encoding", b"gzip")]),
    ]
    found = {name: [] for name, *_ in rows}
    for _ in range(ROUNDS):
        for name, *load in rows:
            found[name].append(ns_per_byte(port, pid, *load))
    honest = statistics.median(found["100 B"])
    print("| value | ns a byte | times calls with 100 B |\n|---|---|---|")
    for name, costs in found.items():
        cost = statistics.median(costs)
        print(f"| {name} | {cost:.1f} | {cost / honest:.2f} |")


if __name__ == "__main__":
    main()
