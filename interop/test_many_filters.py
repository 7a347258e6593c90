"""Many small filters: each call costs about the same, and all are there after a kill.

`SEENSET_FILTERS=9900` measures as many; `-s` prints the figures."""

from __future__ import annotations

import os
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from support.client import Client

FILTERS = int(os.environ.get("SEENSET_FILTERS", "1000"))
CALLERS = 32
CONNECTIONS = 4
# The filters that have metrics of their own.
WITH_METRICS = 200


class Stopwatch:
    """Prints how long each step takes."""

    def __init__(self) -> None:
        self.begun = time.monotonic()

    def lap(self, what: str, count: int = 1) -> None:
        now = time.monotonic()
        seconds, self.begun = now - self.begun, now
        print(f"{what}: {seconds:.2f} s, {1000 * seconds / count:.2f} ms each")


def name(number: int) -> str:
    return f"site-{number:05}"


def test_many_filters_are_made_stored_and_found_again(start) -> None:
    limit = FILTERS + 2  # One more, and the default filter.
    flags = (f"--max-filters={limit}", "--capacity=1000", "--metrics-listen=127.0.0.1:0")
    server = start(*flags)
    clients = [server.connect() for _ in range(CONNECTIONS)]

    def create(number: int) -> Any:
        spec = {"capacity": 1000, "false_positive_rate": 0.01}
        return clients[number % CONNECTIONS].create_filter(name(number), **spec)

    def add(number: int) -> None:
        clients[number % CONNECTIONS].add("key", filter=name(number))

    stopwatch = Stopwatch()
    with ThreadPoolExecutor(CALLERS) as callers:
        list(callers.map(create, range(FILTERS)))
        stopwatch.lap(f"{FILTERS} filters created, {CALLERS} at a time", FILTERS)
        create(FILTERS)
        stopwatch.lap("one more")
        with pytest.raises(grpc.RpcError) as refused:
            create(FILTERS + 1)
        assert refused.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "--max-filters" in refused.value.details()
        stopwatch.lap("one too many")
        list(callers.map(add, range(FILTERS)))
        stopwatch.lap("a key added to each", FILTERS)
        assert len(server.client.store()) == FILTERS + 2
        stopwatch.lap("all stored", FILTERS)
        server.client.store()
        stopwatch.lap("all stored again", FILTERS)

    page = urllib.request.urlopen(f"http://{server.metrics_address}/metrics").read().decode()
    stopwatch.lap(f"/metrics, {len(page)} bytes")
    own = {line for line in page.splitlines() if line.startswith("seenset_filter_memory_bytes{")}
    assert len(own) == min(WITH_METRICS, FILTERS + 2), own

    add_after_store(clients[0])
    server.kill()
    stopwatch = Stopwatch()
    server = start(*flags)
    server.client.settled_health(1)
    stopwatch.lap("a start after a kill")
    assert server.client.query("key", filter=name(FILTERS - 1))
    assert server.client.query("later", filter=name(0))
    assert not server.client.query("later", filter=name(1))


def add_after_store(client: Client) -> None:
    """A key that only the log has."""
    client.add("later", filter=name(0))
