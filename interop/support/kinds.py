"""A filter of each kind and each layout, for tests of what all of them go through."""

from __future__ import annotations

import struct
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from .client import Client

# What beside capacity and rate makes a filter of each kind, of the modules of the contract.
SPECS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "blocked": lambda filters: {"plain": filters.Plain()},
    "classic": lambda filters: {"layout": filters.LAYOUT_CLASSIC},
    "guava": lambda filters: {"layout": filters.LAYOUT_GUAVA},
    "guava-mitz-32": lambda filters: {"layout": filters.LAYOUT_GUAVA_MITZ_32},
    "counting": lambda filters: {"counting": filters.Counting()},
    "aging": lambda filters: {"aging": {"max_age": timedelta(days=30), "slices": 8}},
    "scaling": lambda filters: {"scaling": filters.Scaling()},
}
# No spec makes one of RedisBloom: it is imported.
REDISBLOOM = "redisbloom"
KINDS = (*SPECS, REDISBLOOM)


def make(client: Client, name: str, kind: str, capacity: int, rate: float) -> None:
    """Makes a filter of a kind. One that grows begins with a part of the capacity, and the rate of
    one of RedisBloom is so small that no false positive is to be expected."""
    if kind == REDISBLOOM:
        formats = client.contract.filters
        client.import_filter(name, formats.FILE_FORMAT_REDISBLOOM, empty_dump(capacity))
        return
    first = max(capacity // 24, 1) if kind == "scaling" else capacity
    spec = SPECS[kind](client.contract.filters)
    client.create_filter(name, capacity=first, false_positive_rate=rate, **spec)


def empty_dump(capacity: int) -> bytes:
    """What `BF.SCANDUMP` of RedisBloom tells of a filter without keys, of one layer with 64 bits for
    each key. The fields are those of `dumps.py`."""
    hashes, bits_per_key = 20, 28.8
    size = 8 * capacity
    header = struct.pack("<QIII", 0, 1, 1 | 4, 2) + struct.pack(
        "<QQQddIQB", size, 8 * size, 0, 1e-6, bits_per_key, hashes, capacity, 0
    )
    chunks = ((1, header), (size + 1, bytes(size)))
    return b"".join(struct.pack("<qq", end, len(data)) + data for end, data in chunks)
