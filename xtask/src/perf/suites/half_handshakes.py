"""Keeps TLS handshakes open that it never completes: half_handshakes.py (HOST:PORT | elsewhere).

The server ends handshakes that last too long, so the program replaces the oldest, as an attack that keeps so many open has to. `elsewhere`
is a port of its own, whose connections are accepted and kept: the load is then affected by the clients alone."""

import collections
import itertools
import socket
import ssl
import sys
import threading
import time

COUNT = 5_000
# Time in which the handshakes are opened, before the load begins.
OPENING_SECONDS = 4
# For the work that the last handshakes leave behind.
PAUSE_SECONDS = 1
# The server's default: within this time, each handshake is replaced by another.
HANDSHAKE_TIMEOUT_SECONDS = 10


def client_hello():
    context = ssl.create_default_context()
    context.set_alpn_protocols(["h2"])
    sent = ssl.MemoryBIO()
    try:
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        return sent.read()


def accept_only():
    # As many waiting connections as the server under load allows.
    listener = socket.create_server(("127.0.0.1", 0), backlog=4_096)

    def accept():
        accepted = collections.deque(maxlen=COUNT)
        while True:
            accepted.append(listener.accept())

    threading.Thread(target=accept, daemon=True).start()
    return listener.getsockname()


def paced(seconds, numbers):
    begun = time.monotonic()
    for number in numbers:
        time.sleep(max(0, begun + seconds * number / COUNT - time.monotonic()))
        yield


host, _, port = sys.argv[1].partition(":")
address = accept_only() if host == "elsewhere" else (host, int(port))
hello = client_hello()
handshakes = collections.deque(maxlen=COUNT)


def start():
    handshakes.append(socket.create_connection(address))
    handshakes[-1].sendall(hello)


for _ in paced(OPENING_SECONDS, range(COUNT)):
    start()
time.sleep(PAUSE_SECONDS)
print("ready", flush=True)
for _ in paced(HANDSHAKE_TIMEOUT_SECONDS, itertools.count()):
    start()
