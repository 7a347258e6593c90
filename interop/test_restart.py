"""Promise 1 across restarts: what was acknowledged is seen after a stop, and what was stored
is seen after a crash at any moment."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest

from support.client import NOT_SERVING, SERVING, Client
from support.server import SMALL, Server

ROUNDS = 16


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_keys_are_seen_after_a_stop(start, number: signal.Signals) -> None:
    keys = [f"https://example.com/{number}" for number in range(10_000)]
    server = start()
    server.client.create_filter("pages", capacity=20_000, false_positive_rate=0.01)
    server.client.add_batch(keys)
    server.client.add_batch(keys, filter="pages")
    server.client.query_and_add("last")
    before = {filter.name: filter for filter in server.client.list_filters().filters}
    assert server.stop(number) == 0

    server = start()
    assert server.client.query_batch([*keys, "last"]) == [True] * (len(keys) + 1)
    assert server.client.query_batch(keys, filter="pages") == [True] * len(keys)
    after = {filter.name: filter for filter in server.client.list_filters().filters}
    assert after.keys() == before.keys()
    for name, filter in after.items():
        assert filter.spec == before[name].spec
        assert filter.version == before[name].version
        assert filter.keys_added == before[name].keys_added
        assert filter.create_time == before[name].create_time
    # Still a filter, and not one that says yes to everything.
    others = [f"https://example.org/{number}" for number in range(10_000)]
    assert sum(server.client.query_batch(others)) < 100


def test_a_stopping_server_says_so_and_finishes_what_is_in_flight(start) -> None:
    server = start()
    statuses = server.client.watch_health()
    assert next(statuses).status == SERVING

    more = threading.Event()

    def batches() -> Iterator[list[str]]:
        yield ["before"]
        # Sent when health has changed, so in the middle of the draining.
        assert more.wait(timeout=30)
        yield ["while draining"]

    answers = server.connect().query_and_add_stream(batches())
    assert next(answers) == [False]
    server.process.send_signal(signal.SIGTERM)
    assert next(statuses).status == NOT_SERVING
    more.set()
    # Taken and answered, or refused: never an answer that is then forgotten.
    try:
        answered = list(answers)
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.UNAVAILABLE, error
        answered = []
    statuses.cancel()
    assert server.wait() == 0

    server = start()
    assert server.client.query("before") is True
    assert server.client.query("while draining") is bool(answered)


def test_new_connections_are_refused_once_a_server_has_stopped(start) -> None:
    server = start()
    address = server.address
    assert server.stop() == 0
    with Client(server.contract, address, deadline=10) as client:
        with pytest.raises(grpc.RpcError) as refused:
            client.query("a")
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_silent_stream_does_not_hold_up_the_stop(start) -> None:
    """A crawler with nothing to ask never ends its stream by itself, and a stop that waits
    for it takes all of the drain timeout."""
    server = start(*SMALL, "--drain-timeout=300s")
    ended = threading.Event()

    def silence() -> Iterator[list[str]]:
        yield ["a"]
        ended.wait(timeout=120)

    answers = server.connect().query_and_add_stream(silence())
    assert next(answers) == [False]
    try:
        assert server.stop(deadline=20) == 0
    finally:
        ended.set()


def test_a_watch_on_health_does_not_hold_up_the_stop(start) -> None:
    """Balancers and clients with health checks hold a watch for as long as they live."""
    server = start(*SMALL, "--drain-timeout=300s")
    statuses = server.connect().watch_health()
    assert next(statuses).status == SERVING
    server.process.send_signal(signal.SIGTERM)
    assert next(statuses).status == NOT_SERVING
    assert server.wait(deadline=20) == 0


@dataclass
class Acknowledged:
    """What the server has said, in the order in which it said it."""

    keys: list[str] = field(default_factory=list)
    # How many of the keys the last acknowledged Store must hold, and its version.
    stored_keys: int = 0
    stored_version: int = 0


@contextmanager
def traffic(server: Server, known: Acknowledged, name: str) -> Iterator[None]:
    """Adds with three callers, and stores with a fourth, until the server is gone."""

    def until_gone(step) -> None:
        try:
            while True:
                step()
        except (grpc.RpcError, ValueError) as error:
            # A channel that was closed raises ValueError, a server that is gone UNAVAILABLE.
            if isinstance(error, grpc.Call):
                gone = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
                assert error.code() in gone, error

    def adder(caller: int):
        client, count = server.connect(deadline=30), 0

        def add() -> None:
            nonlocal count
            keys = [f"{name}/{caller}/{count}/{number}" for number in range(50)]
            count += 1
            client.add_batch(keys)
            known.keys.extend(keys)

        return add

    def storer():
        client = server.connect(deadline=30)

        def store() -> None:
            acknowledged = len(known.keys)
            (stored,) = client.store("default")
            known.stored_keys, known.stored_version = acknowledged, stored.version

        return store

    steps = [adder(caller) for caller in range(3)] + [storer()]
    failures: list[BaseException] = []

    def run(step) -> None:
        try:
            until_gone(step)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join(timeout=60)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


def snapshots(data_dir: Path) -> set[str]:
    return {file.name for file in data_dir.glob("*.snapshot.*")}


def test_a_kill_at_any_moment_of_a_store_loses_nothing_that_was_stored(start, data_dir) -> None:
    """Each round adds and stores without a pause, is killed at a random moment, and starts
    again on what the killed server left: the old snapshot or the new one."""
    flags = ("--capacity=20000000", "--false-positive-rate=0.001", "--store-interval=0")
    moments = random.Random(20_070)
    known = Acknowledged()
    interrupted = 0
    server = start(*flags)
    for round in range(ROUNDS):
        with traffic(server, known, str(round)):
            # The moment is what the test is about, so this wait has no condition to await.
            time.sleep(moments.uniform(0.05, 0.6))
            server.process.kill()
            server.process.wait(timeout=60)
        server.kill()
        found = snapshots(data_dir)

        server = start(*flags)
        # What no manifest names was being written, or was of no use any more.
        interrupted += snapshots(data_dir) != found
        # A segment of the log may be in the making at any time.
        assert not list(data_dir.glob("MANIFEST.tmp")), "an unfinished manifest remains"
        shown = server.client.get_filter()
        assert shown.version >= known.stored_version, f"round {round}"
        stored = known.keys[: known.stored_keys]
        for first in range(0, len(stored), 50_000):
            batch = stored[first : first + 50_000]
            assert all(server.client.query_batch(batch)), f"round {round}: a key is forgotten"
        # What was not stored is gone; from here on it is as if it had never been added.
        del known.keys[known.stored_keys :]
    assert known.stored_keys > 0
    assert interrupted > 0, "no kill met a store: this test proved nothing"
