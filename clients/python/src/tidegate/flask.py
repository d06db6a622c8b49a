"""An extension for Flask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import flask

from tidegate import Tidegate
from tidegate import keys as _keys
from tidegate._decision import Decision
from tidegate._guard import Cost, Guard, Keys, Refusal, environ_of
from tidegate._slot import Slot


class FlaskRequest:
    """The parts of a Flask request that keys read."""

    def __init__(self, request: flask.Request) -> None:
        #: The request.
        self.native: Any = request

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection."""
        return self.native.environ.get("REMOTE_ADDR") or None

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self.native.method)

    @property
    def path(self) -> str:
        """The path."""
        return str(self.native.path)

    #: WSGI servers do.
    joins_headers = True

    def header(self, name: str) -> Sequence[str]:
        """Return all values of a header, in order."""
        return list(self.native.headers.getlist(name))


class RateLimit:
    """Limits the requests of a Flask application. The decision is at `flask.g.rate_limit`."""

    def __init__(
        self,
        app: flask.Flask | None = None,
        *,
        client: Tidegate,
        keys: Keys,
        cost: Cost = 1,
        skip: Callable[[_keys.RequestInfo], bool] | None = None,
        legacy_headers: bool = False,
    ) -> None:
        """Create the extension; its options are those of `tidegate.asgi.RateLimitMiddleware`."""
        self._client = client
        self._guard = Guard(keys, cost, skip, legacy_headers)
        if app is not None:
            self.init_app(app)

    def init_app(self, app: flask.Flask) -> None:
        """Limit the requests of an application."""
        app.before_request(self._before)
        app.after_request(self._after)
        app.teardown_request(self._teardown)

    def _before(self) -> flask.Response | None:
        slot = self._guard.decide(self._client, FlaskRequest(flask.request))
        if isinstance(slot, Refusal):
            return _response(slot)
        if slot is not None:
            flask.g.rate_limit = slot.decision
            flask.g.tidegate_slot = slot
            flask.request.environ.update(environ_of(slot.decision))
        return None

    def _after(self, response: flask.Response) -> flask.Response:
        decision: Decision | None = flask.g.get("rate_limit")
        if decision is not None:
            response.headers.update(self._guard.headers(decision))
            # A response may be sent after its request was torn down.
            response.call_on_close(flask.g.pop("tidegate_slot").release)
        return response

    def _teardown(self, _: BaseException | None) -> None:
        # Of a request whose error the application does not handle.
        slot: Slot | None = flask.g.pop("tidegate_slot", None)
        if slot is not None:
            slot.release()


def _response(refusal: Refusal) -> flask.Response:
    return flask.Response(refusal.body, refusal.status, refusal.headers)
