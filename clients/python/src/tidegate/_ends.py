"""Ends of requests with their responses, even if other middleware discards the response."""

from __future__ import annotations

import logging
import queue
import threading
import weakref
from collections.abc import Callable

_logger = logging.getLogger("tidegate")

_lock = threading.Lock()
_thread: threading.Thread | None = None
_discarded: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()


def when_over(response: object, end: Callable[[], None]) -> Callable[[], None]:
    """Return the function to call when a response is closed: it ends the request.

    Nothing closes a response that other middleware replaces, such as by one with status 304. When it is garbage, a
    thread ends the request: a call in the garbage collector could wait for locks of the code that it interrupts.
    """
    _serve()
    discarded = weakref.finalize(response, _discard, end)
    discarded.atexit = False

    def closed() -> None:
        if discarded.detach() is not None:
            end()

    return closed


def _discard(end: Callable[[], None]) -> None:
    _discarded.put(end)


def _serve() -> None:
    """Start the thread, unless it runs. A forked process does not have it."""
    global _thread, _discarded
    if _thread is not None and _thread.is_alive():
        return
    with _lock:
        if _thread is None or not _thread.is_alive():
            _discarded = queue.SimpleQueue()
            _thread = threading.Thread(target=_end_all, args=(_discarded,), name="tidegate-ends", daemon=True)
            _thread.start()


def _end_all(discarded: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        end = discarded.get()
        try:
            end()
        except Exception:
            _logger.exception("the end of a request failed")
