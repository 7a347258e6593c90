"""Promise 2: of all callers that race on one new key, exactly one is told that it is new."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.client import Client
from support.server import Server

CALLERS = 64
# So small a rate that no key is a false positive, and "at most one" means "exactly one".
EXACT = ("--capacity=1000000", "--false-positive-rate=1e-12")


def race(server: Server, caller: Callable[[Client, random.Random], list[str]]) -> Counter[str]:
    """Lets 64 callers loose at the same moment, each on a connection of its own; how many
    of them won each key."""
    clients = [server.connect() for _ in range(CALLERS)]
    for client in clients:
        # The connection is there before the race begins.
        assert client.health() == 1
    ready = threading.Barrier(CALLERS, timeout=60)

    def run(number: int) -> list[str]:
        ready.wait()
        return caller(clients[number], random.Random(number))

    with ThreadPoolExecutor(CALLERS) as pool:
        return Counter(key for won in pool.map(run, range(CALLERS)) for key in won)


def new(keys: list[str], seen: list[bool]) -> list[str]:
    assert len(keys) == len(seen)
    return [key for key, seen in zip(keys, seen, strict=True) if not seen]


@pytest.mark.parametrize("durability", ["interval", "snapshot"])
def test_single_keys(start, durability: str) -> None:
    keys = [f"https://example.com/single/{number}" for number in range(500)]

    def caller(client: Client, _: random.Random) -> list[str]:
        # All in one order, so that they meet at the same keys.
        return [key for key in keys if not client.query_and_add(key)]

    assert race(start(*EXACT, f"--durability={durability}"), caller) == Counter(keys)


def test_batches_in_different_orders(start) -> None:
    keys = [f"https://example.com/batch/{number}" for number in range(20_000)]

    def caller(client: Client, order: random.Random) -> list[str]:
        mine = order.sample(keys, len(keys))
        won = []
        for first in range(0, len(mine), 1000):
            batch = mine[first : first + 1000]
            won += new(batch, client.query_and_add_batch(batch))
        return won

    assert race(start(*EXACT), caller) == Counter(keys)


def test_streams_batches_and_duplicates_in_a_batch(start) -> None:
    keys = [f"https://example.com/mixed/{number}" for number in range(5_000)]

    def caller(client: Client, order: random.Random) -> list[str]:
        # Every key twice in a batch: new at most once of the two times.
        batches = [
            order.sample(batch * 2, len(batch) * 2)
            for first in range(0, len(keys), 250)
            for batch in [keys[first : first + 250]]
        ]
        if order.random() < 0.5:
            answers = list(client.query_and_add_stream(batches))
        else:
            answers = [client.query_and_add_batch(batch) for batch in batches]
        return [
            key for batch, seen in zip(batches, answers, strict=True) for key in new(batch, seen)
        ]

    server = start(*EXACT)
    assert race(server, caller) == Counter(keys)
    assert server.client.get_filter().keys_added == len(keys)
