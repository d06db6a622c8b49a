"""Hooks of schemathesis, for a server with a rule for `user` in the domain `shop`.

In bodies that match the schema, half of all domains, keys and so on are replaced by valid values, and in two of three bodies whole
fields, since random values reach little. Calls are spread over the tokens of TIDEGATE_TOKENS, since each token may make 100 calls a
second. At the end, the statuses of each operation are printed.
"""

import atexit
import base64
import itertools
import json
import os

import schemathesis

KNOWN = {"cidr": "192.0.2.0/24", "domain": "shop", "id": "known", "key": "user", "pageToken": "", "rule": "user", "unit": "hour"}
ENTRIES = [{"key": "user", "value": "ada"}]
LOG = b"""{"v":1,"time":"2026-03-01T12:00:00Z","domain":"shop","code":"OK","descriptors":[
{"entries":[{"key":"user","value":"ada"}],"hits":1,"code":"OK","limit":null,"remaining":0,"reset_ns":null}]}"""
VALID = {
    "block": {"domain": "shop", "key": "user", "value": "eve"},
    "descriptors": [{"entries": ENTRIES}],
    "domain": "shop",
    "id": "known",
    "log": base64.b64encode(LOG.replace(b"\n", b"")).decode(),
    "override": {"domain": "shop", "entries": ENTRIES, "limit": {"requests": 5, "unit": "hour"}},
    "rules": "{ domain: shop, descriptors: [{ key: user, rate_limit: { unit: day, requests_per_unit: 5 } }] }",
}
TOKENS = itertools.cycle(os.environ["TIDEGATE_TOKENS"].split())
STATUSES = {}


def known(value):
    if isinstance(value, list):
        return [known(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: KNOWN[name] if name in KNOWN and isinstance(item, str) and len(item) % 2 == 0 else known(item)
        for name, item in value.items()
    }


def reaching(body):
    body = known(body)
    variant = len(json.dumps(body, default=str)) % 3
    if not isinstance(body, dict) or variant == 0:
        return body
    body.update((name, VALID[name]) for name in VALID if name in body)
    for name in {"block", "override"} & body.keys():
        # The entry that deletions find does not expire; the other expires at a random time.
        body[name] = {**body[name], "id": "known" if variant == 1 else "other"}
        if variant == 1:
            body.pop("expiresIn", None)
    if "descriptors" in body:
        body.pop("rule", None)
    return body


def with_token(request):
    request.headers["authorization"] = f"Bearer {next(TOKENS)}"
    return request


@schemathesis.hook
def before_call(context, case, kwargs):
    if case.meta and case.meta.generation.mode.is_positive:
        case.body = reaching(case.body)
    # Some cases test a missing or a wrong token.
    varied = case.meta and getattr(case.meta.phase.data, "parameter", None)
    if varied != "Authorization":
        kwargs["auth"] = with_token


@schemathesis.hook
def after_call(context, case, response):
    if case.method.upper() == "POST":
        of_path = STATUSES.setdefault(case.path, {})
        of_path[response.status_code] = of_path.get(response.status_code, 0) + 1


@atexit.register
def report():
    for path, statuses in sorted(STATUSES.items()):
        print(path, "never succeeded:" if 200 not in statuses else "statuses:", dict(sorted(statuses.items())))
