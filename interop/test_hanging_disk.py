"""A disk that hangs, neither answering nor failing; files that are taken from a server that runs; a
standard error that nobody reads. What needs none of them goes on, and the rest is told."""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest

from support.client import NOT_SERVING, SERVING, Client
from support.programs import environment
from support.server import SMALL, Server
from support.volume import Volume

DEDUP = "seenset.v1.DedupService"
# _IOWR('X', 119, int) and 120 of the kernel's include/uapi/linux/fs.h.
FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
# So many keys of a batch go to a worker, of which there are as many as cores.
HEAVY = 10_000


@contextmanager
def frozen(volume: Volume) -> Iterator[None]:
    directory = os.open(volume.path, os.O_RDONLY)
    try:
        fcntl.ioctl(directory, FIFREEZE, 0)
        try:
            yield
        finally:
            fcntl.ioctl(directory, FITHAW, 0)
    finally:
        os.close(directory)


def messages(server: Server) -> list[str]:
    return [entry.get("message", "") for entry in server.log]


def until_told(server: Server, message: str, seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not any(message in told for told in messages(server)):
        assert time.monotonic() < until, messages(server)
        time.sleep(0.02)


@pytest.mark.parametrize("durability", ["interval", "always"])
def test_a_disk_that_hangs_stops_nothing_that_does_not_need_it(
    volume: Volume, start, durability: str
) -> None:
    server = start(*SMALL, f"--durability={durability}", data_dir=volume.path / "data")
    client: Client = server.client
    old = [f"old {number}" for number in range(HEAVY)]
    # In a filter of its own: where others have just been added, that a key is there is told when
    # they are in the log.
    client.create_filter("old", capacity=100_000, false_positive_rate=1e-6)
    client.add_batch(old, filter="old")
    assert client.settled_health(SERVING, DEDUP) == SERVING
    new = [[f"new {batch} {number}" for number in range(HEAVY)] for batch in range(12)]
    with ThreadPoolExecutor(len(new)) as callers:
        with frozen(volume):
            begun = time.monotonic()
            # More than there are workers, and more than there is room for in the log.
            adding = [callers.submit(server.connect().add_batch, keys) for keys in new]
            while client.health(DEDUP) == SERVING:
                assert time.monotonic() < begun + 10, "health says nothing of the disk"
                time.sleep(0.02)
            # Two seconds from when the disk is asked, and what this machine takes.
            assert time.monotonic() < begun + 4
            until_told(server, "the disk does not answer")
            assert client.health() == SERVING
            for _ in range(3):
                asked = time.monotonic()
                assert all(client.query_batch(old, filter="old"))
                assert client.query("old 1", filter="old") and not client.query("never")
                assert time.monotonic() < asked + 2
        for added in adding:
            added.result(timeout=60)
    assert client.settled_health(SERVING, DEDUP) == SERVING
    until_told(server, "the disk answers again")
    server.kill()
    again = start(*SMALL, data_dir=volume.path / "data").client
    assert all(again.query_batch(old, filter="old"))
    for keys in new:
        assert all(again.query_batch(keys))


@pytest.mark.parametrize("pattern", ["LOCK", "MANIFEST", "*.log", "log.tail"])
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_is_taken_from_a_server_is_missed(
    start, data_dir: Path, pattern: str, is_replaced: bool
) -> None:
    server = start()
    client: Client = server.client
    client.add_batch([f"old {number}" for number in range(100)])
    # The one that is written to, not the one that is made ahead.
    file = min(data_dir.glob(pattern))
    if is_replaced:
        copy = data_dir / "a copy"
        shutil.copy(file, copy)
        copy.rename(file)
    else:
        file.unlink()
    until_told(server, "not the server's alone")
    with pytest.raises(grpc.RpcError) as refused:
        client.add("new")
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert client.settled_health(NOT_SERVING, DEDUP) == NOT_SERVING
    assert all(client.query_batch([f"old {number}" for number in range(100)]))
    assert any(str(file) in str(entry) for entry in server.log)
    # Whatever was taken, there is no second server.
    with pytest.raises(AssertionError, match="in use by another seenset-server"):
        start()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def test_a_standard_error_that_nobody_reads_stops_nothing(
    programs, contract, data_dir: Path
) -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        pass
    os.set_blocking(writer, True)
    port = free_port()
    process = subprocess.Popen(
        [programs.server, f"--listen=127.0.0.1:{port}", f"--data-dir={data_dir}", *SMALL],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=writer,
    )
    os.close(writer)
    try:
        client = Client(contract, f"127.0.0.1:{port}")
        until = time.monotonic() + 30
        while True:
            try:
                assert client.health() == SERVING
                break
            except (grpc.RpcError, AssertionError):
                assert time.monotonic() < until
                time.sleep(0.05)
        # Each is a line.
        for number in range(100):
            client.add(f"key {number}")
            client.store()
        assert client.query("key 1")
        client.channel.close()
        process.terminate()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)
