"""One of each thing that a server writes files for, in a fixed order, by one caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc

from .client import Client
from .kinds import make
from .ledger import Ledger, Stage
from .programs import run
from .server import Server

# An answer, or the first success after a fault has gone, that takes longer hangs.
DEADLINE_SECONDS = 10
# So short that the log is synced while the steps are taken.
SYNC_SECONDS = 0.1
FLAGS = (
    "--capacity=100000",
    "--false-positive-rate=1e-9",
    f"--sync-interval={SYNC_SECONDS * 1000:.0f}ms",
    "--store-interval=0",
)
# Of a filter that no step changes: while a fault stands it answers.
KEPT = "kept"
SIZE = {"capacity": 1000, "rate": 1e-9}
REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
# What a second try is told where the first has been carried out, but not acknowledged.
DONE_BEFORE = (grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.NOT_FOUND)


def prepared_keys(filter: str) -> list[str]:
    return [f"{filter}/{number}" for number in range(100)]


def prepare(server: Server) -> None:
    """What is there before a scenario: filters with keys in a snapshot, and keys in the log. They
    and those that are made are of several kinds."""
    client = server.client
    make(client, KEPT, "counting", **SIZE)
    make(client, "old", "redisbloom", **SIZE)
    for name in (KEPT, "old", "default"):
        keys = prepared_keys(name)
        client.add_batch(keys[:50], filter=name)
        client.store(name)
        client.add_batch(keys[50:], filter=name)
    server.kill()


def ledger_of_prepared() -> Ledger:
    ledger = Ledger()
    for name in ("default", KEPT, "old"):
        ledger.stage(name, Stage.THERE)
        ledger.answered(name, prepared_keys(name), None)
    return ledger


class Scenario:
    """The steps, and what they were told. With `pauses` the server has time for a sync that
    nobody waits for."""

    def __init__(self, ledger: Ledger, name: str, pauses: bool) -> None:
        self._ledger = ledger
        self._name = name
        self._pauses = pauses
        self.findings: list[str] = []
        self.refusals = 0

    def run(self, server: Server, gone: Callable[[], object] | None = None) -> None:
        """Takes all steps. With `gone`, which sees to it that the fault is gone, a step that
        was refused is tried until it succeeds."""
        client = server.connect(deadline=DEADLINE_SECONDS)
        for name, step in self._steps():
            begun = time.monotonic()
            while (error := self._try(name, step, client)) is not None and gone is not None:
                gone()
                if time.monotonic() - begun > DEADLINE_SECONDS:
                    self.findings.append(f"{name} is refused although the fault is gone: {error}")
                    break
                time.sleep(0.02)

    def _try(self, name: str, step: Callable[[Client], None], client: Client) -> object:
        error = None
        try:
            step(client)
        except grpc.RpcError as refused:
            error = refused
            self.refusals += 1
            if error.code() not in REFUSED:
                self.findings.append(f"{name} ended with {error}")
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                # The rest would hang as long.
                raise
            try:
                if not client.query(f"{KEPT}/7", filter=KEPT):
                    self.findings.append(f"after {name}, a key is forgotten at once")
            except grpc.RpcError as queried:
                self.findings.append(f"after {name}, a query is not answered: {queried}")
        return error

    def _steps(self) -> Iterator[tuple[str, Callable[[Client], None]]]:
        name, ledger = self._name, self._ledger

        def single(key: str) -> Callable[[Client], None]:
            def step(client: Client) -> None:
                ledger.asked("default", [key])
                ledger.answered("default", [key], [client.query_and_add(key)])

            return step

        def batch(keys: list[str], filter: str) -> Callable[[Client], None]:
            def step(client: Client) -> None:
                ledger.asked(filter, keys)
                seen = client.query_and_add_batch(keys, filter=filter)
                ledger.answered(filter, keys, seen)

            return step

        def stream(client: Client) -> None:
            batches = [[f"{name}/stream/{number}/{key}" for key in range(9)] for number in range(3)]
            ledger.asked("default", sum(batches, []))
            for keys, seen in zip(batches, client.query_and_add_stream(batches), strict=True):
                ledger.answered("default", keys, seen)

        def add(client: Client) -> None:
            ledger.asked("default", [f"{name}/add"])
            client.add(f"{name}/add")
            ledger.answered("default", [f"{name}/add"], None)

        def store(filter: str) -> Callable[[Client], None]:
            return lambda client: client.store(filter)

        def create(filter: str, kind: str) -> Callable[[Client], None]:
            def step(client: Client) -> None:
                ledger.stage(filter, Stage.CREATING)
                if _unless_done_before(lambda: make(client, filter, kind, **SIZE)):
                    ledger.stage(filter, Stage.THERE)

            return step

        def delete(filter: str) -> Callable[[Client], None]:
            def step(client: Client) -> None:
                ledger.stage(filter, Stage.DELETING)
                if _unless_done_before(lambda: client.delete_filter(filter)):
                    ledger.stage(filter, Stage.GONE)

            return step

        def pause(_: Client) -> None:
            time.sleep(2 * SYNC_SECONDS)

        made, brief = f"{name}-made", f"{name}-brief"
        yield "a single call", single(f"{name}/single")
        yield "a batch", batch([f"{name}/batch/{number}" for number in range(200)], "default")
        if self._pauses:
            yield "a pause", pause
        yield "a stream", stream
        yield "an add", add
        yield "a store", store("default")
        yield "making a filter", create(made, "scaling")
        if made in ledger.certain():
            yield "a batch for it", batch([f"{name}/made/{key}" for key in range(50)], made)
        yield "a store of all", store("")
        yield "removing a filter", delete("old")
        yield "making another", create(brief, "aging")
        if brief in ledger.certain():
            yield "a batch for that", batch([f"{name}/brief/{key}" for key in range(50)], brief)
        yield "removing that", delete(brief)
        yield "a second call", single(f"{name}/second")
        yield "a second store", store("default")
        yield "a last call", single(f"{name}/last")


def _unless_done_before(call: Callable[[], object]) -> bool:
    """Whether a call was carried out, and not just the one before it that was refused."""
    try:
        call()
    except grpc.RpcError as error:
        if error.code() in DONE_BEFORE:
            return False
        raise
    return True


def check(server: Server, ledger: Ledger) -> list[str]:
    """What a server without faults does not know of what the one before it has told."""
    return ledger.check(server.client, time.monotonic(), 0.0).broken


def copy(prepared: Path, to: Path) -> Path:
    """A data directory of its own for each run."""
    result = run("cp", "--archive", "--sparse=always", prepared, to)
    assert result.returncode == 0, result.stderr
    return to
