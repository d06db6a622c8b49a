"""Rate limits that a Tidegate server decides.

```python
from tidegate import Tidegate

client = Tidegate("127.0.0.1:8081", domain="demo")
decision = client.limit(api_key="alice")
print(decision.allowed, decision.remaining, decision.retry_after)
```

`tidegate.aio` has the same client for asyncio; `tidegate.asgi`, `tidegate.fastapi`, `tidegate.django`,
`tidegate.flask` and `tidegate.grpc` apply decisions to requests; `tidegate.keys` reads descriptors from requests;
`tidegate.metrics` counts decisions.
"""

from tidegate._decision import Decision, Reason, Status
from tidegate._engine import MetadataSource, Observer, OnFailure, RateLimited, RequestError
from tidegate._limit import Limit
from tidegate._request import Descriptor, DescriptorLike
from tidegate._slot import AioSlot, Slot
from tidegate._sync import Tidegate

__all__ = [
    "AioSlot",
    "Decision",
    "Descriptor",
    "DescriptorLike",
    "Limit",
    "MetadataSource",
    "Observer",
    "OnFailure",
    "RateLimited",
    "Reason",
    "RequestError",
    "Slot",
    "Status",
    "Tidegate",
]
