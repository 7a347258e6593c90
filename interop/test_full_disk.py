"""A disk without room: keys are refused before any is marked, queries go on, also after a start,
and keys are taken again when there is room, by itself. On a file system of its own."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import grpc
import pytest

from support.client import NOT_SERVING, SERVING, Client
from support.kinds import KINDS, make
from support.server import Server
from support.volume import Volume

EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
DEDUP = "seenset.v1.DedupService"
# Small segments, for what is kept for them is to be used up.
FLAGS = (
    "--capacity=1000",
    "--store-interval=0",
    "--log-segment-size=1MiB",
    "--max-batch-keys=1000",
)
BATCH = 1000


def fill(volume: Volume) -> Path:
    """Takes all room of the volume, to the last block."""
    ballast = volume.path / "ballast"
    with ballast.open("ab") as file:
        piece = 64 << 20
        while piece >= 4096:
            try:
                os.posix_fallocate(file.fileno(), os.fstat(file.fileno()).st_size, piece)
            except OSError as error:
                assert error.errno == errno.ENOSPC, error
                piece //= 2
    return ballast


def keys(batch: int) -> list[str]:
    return [f"{batch}/{number}" for number in range(BATCH)]


def kind_of(batch: int) -> str:
    """The filter that a batch goes to, which is called as its kind is."""
    return KINDS[batch % len(KINDS)]


def add(client: Client, batch: int) -> None:
    client.add_batch(keys(batch), filter=kind_of(batch))


def seen(client: Client, batch: int) -> list[bool]:
    return client.query_batch(keys(batch), filter=kind_of(batch))


def add_until_refused(client: Client, first: int) -> int:
    """The number of the batch that is refused."""
    for batch in range(first, first + 1000):
        try:
            add(client, batch)
        except grpc.RpcError as error:
            assert error.code() == EXHAUSTED, error
            assert "the server's disk is full" in error.details(), error
            return batch
    raise AssertionError("a full disk took a thousand batches")


def await_room(client: Client, batch: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            return add(client, batch)
        except grpc.RpcError as error:
            assert error.code() == EXHAUSTED, error
            assert time.monotonic() < deadline, "keys are still refused"
            time.sleep(0.05)


def assert_seen(client: Client, batches: int) -> None:
    for batch in range(batches):
        assert all(seen(client, batch)), batch


@pytest.mark.parametrize("durability", ["always", "interval"])
def test_a_full_disk_takes_no_keys_and_answers_queries(
    volume: Volume, start, durability: str
) -> None:
    flags = (*FLAGS, f"--durability={durability}")

    def server() -> Server:
        return start(*flags, data_dir=volume.path / "data")

    first = server()
    for kind in KINDS:
        make(first.client, kind, kind, capacity=200_000, rate=1e-9)
    add(first.client, 0)
    ballast = fill(volume)
    # What is kept for the log is there, and no more.
    refused = add_until_refused(first.client, 1)
    assert refused > 10
    assert first.client.settled_health(NOT_SERVING, DEDUP) == NOT_SERVING
    assert first.client.health() == SERVING
    assert not any(seen(first.client, refused))
    assert_seen(first.client, refused)
    first.kill()
    # What the kill gave back.
    fill(volume)

    second = server()
    assert_seen(second.client, refused)
    # Whatever the last one left may be used.
    refused = add_until_refused(second.client, refused)
    assert_seen(second.client, refused)
    assert not any(seen(second.client, refused))
    assert second.client.settled_health(NOT_SERVING, DEDUP) == NOT_SERVING
    second.kill()
    fill(volume)

    # There is no room left that another segment could be made in.
    third = server()
    assert_seen(third.client, refused)
    assert add_until_refused(third.client, refused) == refused
    assert third.client.settled_health(NOT_SERVING, DEDUP) == NOT_SERVING
    ballast.unlink()
    await_room(third.client, refused)
    assert third.client.settled_health(SERVING, DEDUP) == SERVING
    third.client.store()
    await_room(third.client, refused + 1)
    third.kill()
    assert_seen(server().client, refused + 2)
