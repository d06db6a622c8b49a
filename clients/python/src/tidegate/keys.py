"""Keys: the entries of a descriptor, read from requests.

A key reads one entry of a descriptor from a request. Middleware takes a list of them:

```python
from tidegate import keys

[keys.constant("route", "search"), keys.header("x-api-key", entry="api_key", missing="reject")]
```

`missing` has no default: the treatment of a request without the value is a decision about security.

- `"reject"`: the request is refused with 400 (gRPC: INVALID_ARGUMENT).
- `"allow"`: the request is not limited here.
- `"shared"`: all such requests share one counter, with the empty value.

A list of lists has the keys of several descriptors, which are decided together: all or nothing. A request without the
value of an `"allow"` key is then limited by the others.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, TypeAlias

from tidegate._request import Entries, is_value

#: The address of a proxy's client in a pair of `Forwarded`.
_FOR = re.compile(r'\s*for=("?)(.*)\1\s*$', re.IGNORECASE)

#: Treatment of a request that lacks the value of a key.
Missing: TypeAlias = Literal["reject", "allow", "shared"]


class RequestInfo(Protocol):
    """The parts of a request that keys read, for every framework."""

    @property
    def peer(self) -> str | None:
        """The address of the other end of the connection, without port; None if it has none."""

    @property
    def method(self) -> str:
        """The HTTP method; of gRPC the full name of the method."""

    @property
    def path(self) -> str:
        """The path; of gRPC the full name of the method."""

    @property
    def native(self) -> Any:
        """The framework's own request."""

    def header(self, name: str) -> Sequence[str]:
        """Return all values of a header (of gRPC: of a metadata key), in order, one character for each byte."""

    @property
    def joins_headers(self) -> bool:
        """Whether the platform joins the values of a repeated header by commas."""


class Key:
    """One entry of a descriptor, read from requests."""

    def __init__(self, entry: str, read: Callable[[RequestInfo], str | None], missing: Missing) -> None:
        if not entry:
            raise ValueError("entry is empty; name the key of the rules")
        if missing not in ("reject", "allow", "shared"):
            raise ValueError(f'missing is {missing!r}; use "reject", "allow" or "shared"')
        #: The entry's key, as in the rules.
        self.entry = entry
        #: Returns the entry's value.
        self.read = read
        #: Treatment of requests without a value.
        self.missing = missing


class MissingKeyError(Exception):
    """A request lacks the value of a key whose `missing` is `"reject"`."""

    def __init__(self, entry: str) -> None:
        super().__init__(f"the request has no {entry}")
        #: The entry's key.
        self.entry = entry

    def __reduce__(self) -> tuple[type[MissingKeyError], tuple[str]]:
        return type(self), (self.entry,)


class BadKeyError(Exception):
    """A request has a value that is no key, such as a repeated header."""


def constant(entry: str, value: str) -> Key:
    """Return a key with the same value for each request, such as the name of a route."""
    return Key(entry, lambda _: value, "shared")


def header(name: str, *, entry: str, missing: Missing) -> Key:
    """Return a key with the value of a header, as UTF-8.

    A request that repeats the header is refused with 400, whatever the values: the application may read another one.
    Where the platform joins repeated headers (WSGI, Django), a value with a comma is one; `custom` reads others.
    """
    lower = name.lower()

    def read(request: RequestInfo) -> str | None:
        values = request.header(lower)
        if not values:
            return None
        if len(values) > 1 or (request.joins_headers and "," in values[0]):
            raise BadKeyError(f"the header {lower} is repeated")
        return _utf_8(values[0]).strip()

    return Key(entry, read, missing)


def _utf_8(value: str) -> str:
    """Return a text whose characters are bytes, as frameworks read headers, as UTF-8; other bytes become surrogates."""
    if value.isascii():
        return value
    try:
        return value.encode("latin-1").decode(errors="surrogateescape")
    except UnicodeEncodeError:
        # Not only bytes: the framework has decoded it.
        return value


def custom(entry: str, read: Callable[[Any], str | int | None], *, missing: Missing) -> Key:
    """Return a key with a value that is read from the framework's own request; whole numbers become text.

    An empty value, or only spaces, counts as missing.
    """

    def value(request: RequestInfo) -> str | None:
        found = read(request.native)
        if found is None or isinstance(found, str):
            return found
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found)
        raise TypeError(f"the key {entry} is {found!r}; return a str, an int or None")

    return Key(entry, value, missing)


def client_address(
    *,
    trusted_proxies: int,
    entry: str = "client_address",
    missing: Missing,
    forwarded: Literal["x-forwarded-for", "forwarded"] = "x-forwarded-for",
) -> Key:
    """Return a key with the client's address, IPv6 cut to its /64 network.

    `trusted_proxies`: how many proxies of your own append to `X-Forwarded-For` on the way. With 0 the header is not
    read at all, since any client can write it.
    `forwarded`: the header to which they append; `"forwarded"` is that of RFC 7239.
    """
    if trusted_proxies < 0:
        raise ValueError(f"trusted_proxies is {trusted_proxies}; use 0 or more")

    def read(request: RequestInfo) -> str | None:
        if forwarded == "forwarded" and trusted_proxies:
            return forwarded_address_of(request.header(forwarded), trusted_proxies)
        return address_of(request.peer, request.header("x-forwarded-for"), trusted_proxies)

    return Key(entry, read, missing)


def address_of(peer: str | None, forwarded_for: Sequence[str], trusted_proxies: int) -> str | None:
    """Return the client's address for a peer and the `X-Forwarded-For` lines, or None.

    >>> address_of("10.0.0.1", ["198.51.100.66, 203.0.113.1"], 1)
    '203.0.113.1'
    """
    if trusted_proxies == 0:
        return None if peer is None else normalized(peer)
    written = [address for line in forwarded_for for address in line.split(",")]
    # Each trusted proxy has appended the address it saw; the client wrote everything left of these.
    return normalized(written[-trusted_proxies]) if len(written) >= trusted_proxies else None


def forwarded_address_of(forwarded: Sequence[str], trusted_proxies: int) -> str | None:
    """Return the client's address for the `Forwarded` lines (RFC 7239) of so many proxies, or None.

    >>> forwarded_address_of(['for=198.51.100.66, for="203.0.113.1:80";proto=https'], 1)
    '203.0.113.1'
    """
    element = _from_the_right(",".join(forwarded), trusted_proxies)
    found = [_FOR.match(pair) for pair in _split(element or "")]
    nodes = [match[2] for match in found if match is not None]
    return normalized(nodes[0]) if len(nodes) == 1 else None


def _from_the_right(elements: str, position: int) -> str | None:
    """Return the element at a position, counted from the right.

    Quotes are paired from the right too: the elements of trusted proxies are whole, and left of them a client may have
    left a quote open.
    """
    end, is_quoted = len(elements), False
    for index in reversed(range(len(elements))):
        if elements[index] == '"' and not (is_quoted and _is_escaped(elements, index)):
            is_quoted = not is_quoted
        elif elements[index] == "," and not is_quoted:
            position -= 1
            if position == 0:
                return elements[index + 1 : end]
            end = index
    return elements[:end] if position == 1 else None


def _is_escaped(text: str, index: int) -> bool:
    """Return whether the character at this index is escaped, within quotes."""
    first = index
    while first > 0 and text[first - 1] == "\\":
        first -= 1
    return (index - first) % 2 == 1


def _split(text: str) -> list[str]:
    """Split a text at semicolons outside of quotes; no part if a quote is open."""
    parts, is_quoted, is_escaped = [""], False, False
    for character in text:
        if character == ";" and not is_quoted:
            parts.append("")
            continue
        if character == '"' and not is_escaped:
            is_quoted = not is_quoted
        is_escaped = is_quoted and character == "\\" and not is_escaped
        parts[-1] += character
    return [] if is_quoted else parts


def normalized(address: str) -> str | None:
    """Return an IPv4 address, or the /64 network of an IPv6 address; None for anything else.

    >>> normalized("[2001:db8:1:2::9]:443")
    '2001:db8:1:2::/64'
    """
    text = address.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def entries_of(keys: Sequence[Key], request: RequestInfo) -> Entries | None:
    """Return the entries for a request; None if it is not limited.

    Raises `MissingKeyError` or `BadKeyError` if it is refused.
    """
    entries, is_limited = [], True
    for key in keys:
        value = key.read(request)
        if value and not value.isascii() and not is_value(value):
            raise BadKeyError(f"the value of {key.entry} is no UTF-8")
        if not value or value.isspace():
            if key.missing == "reject":
                raise MissingKeyError(key.entry)
            # A later key may still refuse the request.
            is_limited = is_limited and key.missing != "allow"
            value = ""
        entries.append((key.entry, value))
    return tuple(entries) if is_limited else None
