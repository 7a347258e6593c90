"""The size of the old service: 2^33 bits for 500,000,000 keys."""

from __future__ import annotations

import time

from support.client import SERVING
from support.server import Server

BIT_COUNT = 1 << 33
LARGE = ("--capacity=500000000", f"--bit-count={BIT_COUNT}", "--max-memory=4GiB")
MIB = 1024


def test_it_starts_at_once_and_takes_no_memory_until_keys_come(start, tmp_path) -> None:
    # A directory for each try: what counts is the first start, which makes the filter.
    took = []
    for attempt in range(3):
        server = start(*LARGE, data_dir=tmp_path / str(attempt))
        assert server.client.health() == SERVING
        took.append(time.monotonic() - server.started)
        assert server.status_kib("VmHWM") < 200 * MIB
        if attempt < 2:
            server.kill()
    assert min(took) < 1, took

    shown = server.client.get_filter()
    assert (shown.spec.bit_count, shown.spec.capacity) == (BIT_COUNT, 500_000_000)
    assert shown.memory_bytes >= BIT_COUNT // 8
    (stored,) = server.client.store()
    assert stored.written_bytes < 16 << 20, "regions that are still empty take room"
    assert server.status_kib("VmRSS") < 200 * MIB
    server.kill()

    begun = time.monotonic()
    server = start(*LARGE, data_dir=tmp_path / "2")
    assert server.client.health() == SERVING
    assert time.monotonic() - begun < 2, "restoring an empty filter takes as long as a full one"
    assert server.status_kib("VmHWM") < 200 * MIB


def test_store_and_restore(start) -> None:
    server = start(*LARGE)
    batches = [
        [f"https://example.com/{batch}/{key}" for key in range(10_000)] for batch in range(20)
    ]
    for batch in batches:
        server.client.add_batch(batch)
    (stored,) = server.client.store()
    assert stored.version == server.client.get_filter().version
    # Killed, so that what comes back is what Store wrote and not a last snapshot.
    server.kill()

    server = restored(start)
    for batch in batches:
        assert all(server.client.query_batch(batch))
    assert server.client.get_filter().version == stored.version
    others = [f"https://example.org/{key}" for key in range(100_000)]
    assert sum(server.client.query_batch(others)) == 0
    assert server.stop() == 0


def restored(start) -> Server:
    server = start(*LARGE)
    assert server.client.health() == SERVING
    return server
