"""Observers that count decisions, and the trace context of calls.

```python
from prometheus_client import REGISTRY
from tidegate import Tidegate, metrics

client = Tidegate("127.0.0.1:8081", domain="shop", observers=[metrics.prometheus(REGISTRY)])
```
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidegate._decision import Decision
from tidegate._engine import MetadataSource, Observer

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from prometheus_client import CollectorRegistry

_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


def prometheus(registry: CollectorRegistry) -> Observer:
    """Return an observer with the metrics `tidegate_client_decisions_total` and `tidegate_client_seconds`."""
    from prometheus_client import Counter, Histogram

    decisions = Counter(
        "tidegate_client_decisions",
        "Decisions by what made them",
        ["allowed", "reason", "error"],
        registry=registry,
    )
    seconds = Histogram(
        "tidegate_client_seconds",
        "Seconds that decisions took",
        ["reason"],
        buckets=_BUCKETS,
        registry=registry,
    )

    def observe(decision: Decision, taken: float) -> None:
        reason = decision.reason.value
        decisions.labels(str(decision.allowed).lower(), reason, decision.error or "").inc()
        seconds.labels(reason).observe(taken)

    return observe


def opentelemetry(meter: Meter) -> Observer:
    """Return an observer with the instruments `tidegate.client.decisions` and `tidegate.client.duration`."""
    decisions = meter.create_counter("tidegate.client.decisions", description="Decisions by what made them")
    duration = meter.create_histogram("tidegate.client.duration", unit="s", description="Seconds that decisions took")

    def observe(decision: Decision, taken: float) -> None:
        reason = decision.reason.value
        attributes: dict[str, str | bool] = {
            "allowed": decision.allowed,
            "reason": reason,
            "error": decision.error or "",
        }
        decisions.add(1, attributes)
        duration.record(taken, {"reason": reason})

    return observe


def trace_context() -> MetadataSource:
    """Return a source of metadata that passes the current OpenTelemetry context on: `metadata=[trace_context()]`."""
    from opentelemetry import propagate

    def inject() -> Iterable[tuple[str, str]]:
        carrier: dict[str, str] = {}
        propagate.inject(carrier)
        return carrier.items()

    return inject
