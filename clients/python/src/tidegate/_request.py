"""Requests: descriptors as values, and as messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from tidegate._limit import Limit
from tidegate._proto import rls_pb2 as pb

_COST_MAX: Final = 2**64 - 1
_UNITS: Final = {
    unit.lower(): pb.RateLimitDescriptor.Unit.Value(unit)
    for unit in pb.RateLimitDescriptor.Unit.keys()  # noqa: SIM118 (an enum wrapper, not a dict)
    if unit != "UNKNOWN"
}

#: Entries in order, each a key and a value.
Entries: TypeAlias = tuple[tuple[str, str], ...]


class Descriptor:
    """The subject of a limit: entries, from the most general to the most particular."""

    __slots__ = ("cost", "entries", "give_back", "limit")

    def __init__(
        self,
        entries: Mapping[str, str] | Iterable[tuple[str, str]],
        *,
        cost: int | None = None,
        limit: Limit | None = None,
        give_back: bool = False,
    ) -> None:
        pairs = entries.items() if isinstance(entries, Mapping) else entries
        #: The entries, in order.
        self.entries: Entries = tuple((key, value) for key, value in pairs)
        #: Hits of this descriptor; None for those of the call.
        self.cost = None if cost is None else _checked(cost)
        #: A limit of the request, instead of the rule's.
        self.limit = limit
        #: Whether hits are given back instead of taken.
        self.give_back = give_back
        _check_entries(self.entries)
        if limit is not None and limit.unit not in _UNITS:
            raise ValueError(f"limit.unit is {limit.unit!r}; use one of {', '.join(_UNITS)}")

    def __repr__(self) -> str:
        return f"Descriptor({dict(self.entries)!r}, cost={self.cost}, limit={self.limit!r})"


#: Argument of a client's calls for a descriptor.
DescriptorLike: TypeAlias = Descriptor | Mapping[str, str]


class Request:
    """One request: its message, and its identity among kept denials."""

    __slots__ = ("costs", "domain", "gives_back", "identity", "parts")

    def __init__(
        self,
        domain: str,
        descriptors: tuple[DescriptorLike, ...],
        named: Mapping[str, str],
        cost: int,
        give_back: bool,
    ) -> None:
        if not domain:
            raise ValueError("no domain; name it in the client or in the call")
        if cost != 1:
            _checked(cost)
        self.domain = domain
        #: The entries, the limit, and whether it gives back, of each descriptor.
        self.parts: list[tuple[Entries, Limit | None, bool]] = []
        self.costs: tuple[int, ...] = ()
        if named:
            entries = tuple(named.items())
            _check_entries(entries)
            self.parts.append((entries, None, give_back))
            self.costs = (cost,)
        self.gives_back = give_back
        if descriptors:
            self._add(descriptors, cost, give_back)
        if not self.parts:
            raise ValueError('no descriptor; name an entry, as in limit(api_key="k")')
        self.identity: object = (domain, self.parts[0]) if len(self.parts) == 1 else (domain, *self.parts)

    def _add(self, descriptors: tuple[DescriptorLike, ...], cost: int, give_back: bool) -> None:
        costs = list(self.costs)
        for descriptor in descriptors:
            if isinstance(descriptor, Descriptor):
                gives_back = give_back or descriptor.give_back
                self.parts.append((descriptor.entries, descriptor.limit, gives_back))
                costs.append(cost if descriptor.cost is None else descriptor.cost)
            else:
                if not isinstance(descriptor, Mapping):
                    raise TypeError(
                        f"a descriptor is {descriptor!r}; use entries by name, as in limit(api_key={descriptor!r}), "
                        "or a mapping"
                    )
                entries = tuple(descriptor.items())
                _check_entries(entries)
                self.parts.append((entries, None, give_back))
                costs.append(cost)
        self.costs = tuple(costs)
        self.gives_back = any(gives_back for _, _, gives_back in self.parts)

    def shapes(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Return the domain with the keys of each descriptor."""
        for entries, _, _ in self.parts:
            yield self.domain, tuple([key for key, _ in entries])

    def shapes_given_back(self) -> Iterable[tuple[str, tuple[str, ...]]]:
        """Return the domain with the keys of each descriptor that gives back."""
        for entries, _, gives_back in self.parts:
            if gives_back:
                yield self.domain, tuple([key for key, _ in entries])

    def message(self) -> pb.RateLimitRequest:
        """Return the message."""
        message = pb.RateLimitRequest(domain=self.domain)
        for (entries, limit, gives_back), cost in zip(self.parts, self.costs, strict=True):
            descriptor = message.descriptors.add()
            for key, value in entries:
                descriptor.entries.add(key=key, value=value.encode(errors="surrogateescape"))
            if cost != 1:
                # An explicit 0 is a peek; an absent cost is 1.
                descriptor.hits_addend.value = cost
            if gives_back:
                descriptor.is_negative_hits = True
            if limit is not None:
                descriptor.limit.requests_per_unit = limit.requests
                descriptor.limit.unit = _UNITS[limit.unit]
        return message


def _checked(cost: int) -> int:
    if isinstance(cost, bool) or not isinstance(cost, int):
        raise TypeError(f"cost is {cost!r}; use a whole number")
    if not 0 <= cost <= _COST_MAX:
        raise ValueError(f"cost is {cost}; use 0 to {_COST_MAX} (hits are returned by give_back)")
    return cost


def _check_entries(entries: Entries) -> None:
    if not entries:
        raise ValueError("a descriptor without entries; name at least one")
    for key, value in entries:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"entry {key!r} is {value!r}; keys and values are str")
        if not key:
            raise ValueError("an entry without key; name the key of the rules")
        if not (value.isascii() and key.isascii()):
            for text, is_sendable in ((key, is_value(key, "strict")), (value, is_value(value))):
                if not is_sendable:
                    raise ValueError(f"{text!r} is no UTF-8; keys and values are sent as UTF-8")


def is_value(text: str, errors: str = "surrogateescape") -> bool:
    """Return whether a text is UTF-8, or has surrogates for bytes that are not (PEP 383)."""
    try:
        text.encode(errors=errors)
    except UnicodeEncodeError:
        return False
    return True
