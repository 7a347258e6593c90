"""Callers of every kind who keep a server busy, and a ledger of what they are told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import grpc

from .client import Client
from .ledger import Ledger, Stage
from .server import Server

# An answer that takes longer hangs.
DEADLINE_SECONDS = 30
BATCH_KEYS = 40
REFUSED = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED)
GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


class Load:
    """Threads that ask until the server is gone. Two of each kind ask for the same keys, so
    that each key has callers who race for it."""

    def __init__(
        self, server: Server, ledger: Ledger, name: str, *, patient: bool, stores: bool
    ) -> None:
        self._server = server
        self._ledger = ledger
        self._name = name
        # Whether a refusal before the end is put up with.
        self._patient = patient
        self._ended = threading.Event()
        self._clients = ExitStack()
        self._failures: list[BaseException] = []
        self.refusals = 0
        steps = [
            *(self._singles(caller) for caller in range(4)),
            *(self._batches(caller) for caller in range(2)),
            *(self._streams() for _ in range(2)),
            self._adds(),
        ]
        # Each puts a snapshot of what there is on stable storage. Without, it is all up to the
        # log.
        if stores:
            steps += [self._stores(), self._filters()]
        self._threads = [threading.Thread(target=self._run, args=(step,)) for step in steps]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """The server has been killed by now, or the callers would go on."""
        self.end()
        # Wakes those whose call the server will not answer any more.
        self._clients.close()
        for thread in self._threads:
            thread.join(timeout=2 * DEADLINE_SECONDS)
        assert not self._failures, self._failures
        assert not any(thread.is_alive() for thread in self._threads), "a caller hangs"

    def end(self) -> None:
        """From now on an error is what is to be expected, and ends its caller."""
        self._ended.set()

    def _run(self, step: Callable[[], None]) -> None:
        while True:
            try:
                step()
            except grpc.RpcError as error:
                if self._ended.is_set() and error.code() in GONE:
                    return
                if not (self._patient and error.code() in REFUSED):
                    self._failures.append(error)
                    return
                self.refusals += 1
                time.sleep(0.01)
            except ValueError as error:
                # The channel was closed.
                if not self._ended.is_set():
                    self._failures.append(error)
                return
            except BaseException as error:
                self._failures.append(error)
                return

    def _connect(self) -> Client:
        client = Client(self._server.contract, self._server.address, deadline=DEADLINE_SECONDS)
        return self._clients.enter_context(client)

    def _singles(self, caller: int) -> Callable[[], None]:
        client, numbers = self._connect(), iter(range(1 << 30))

        def step() -> None:
            key = f"{self._name}/single/{caller // 2}/{next(numbers)}"
            self._ledger.asked("default", [key])
            self._ledger.answered("default", [key], [client.query_and_add(key)])

        return step

    def _batches(self, caller: int) -> Callable[[], None]:
        client, numbers = self._connect(), iter(range(1 << 30))
        order = random.Random(caller)

        def step() -> None:
            keys = self._batch("batch", next(numbers))
            order.shuffle(keys)
            self._ledger.asked("default", keys)
            self._ledger.answered("default", keys, client.query_and_add_batch(keys))

        return step

    def _streams(self) -> Callable[[], None]:
        client, numbers = self._connect(), iter(range(1 << 30))

        def step() -> None:
            sent: list[list[str]] = []

            def batches() -> Iterator[list[str]]:
                # Several under way at once, and an end, or nothing would ever go back.
                for _ in range(8):
                    keys = self._batch("stream", next(numbers))
                    self._ledger.asked("default", keys)
                    sent.append(keys)
                    yield keys

            answers = client.query_and_add_stream(batches())
            for place, seen in enumerate(answers):
                self._ledger.answered("default", sent[place], seen)

        return step

    def _adds(self) -> Callable[[], None]:
        client, numbers = self._connect(), iter(range(1 << 30))

        def step() -> None:
            key = f"{self._name}/add/{next(numbers)}"
            self._ledger.asked("default", [key])
            client.add(key)
            self._ledger.answered("default", [key], None)

        return step

    def _stores(self) -> Callable[[], None]:
        client, pauses = self._connect(), random.Random(self._name)

        def step() -> None:
            client.store("default" if pauses.random() < 0.5 else "")
            self._ended.wait(pauses.uniform(0, 0.15))

        return step

    def _filters(self) -> Callable[[], None]:
        client, numbers = self._connect(), iter(range(1 << 30))

        def step() -> None:
            number = next(numbers)
            filter = f"{self._name}-{number}"
            self._ledger.stage(filter, Stage.CREATING)
            client.create_filter(filter, capacity=1000, false_positive_rate=1e-9)
            self._ledger.stage(filter, Stage.THERE)
            keys = self._batch("filter", number)
            self._ledger.asked(filter, keys)
            self._ledger.answered(filter, keys, client.query_and_add_batch(keys, filter=filter))
            if number % 2:
                self._ledger.stage(filter, Stage.DELETING)
                client.delete_filter(filter)
                self._ledger.stage(filter, Stage.GONE)
            self._ended.wait(0.03)

        return step

    def _batch(self, kind: str, number: int) -> list[str]:
        return [f"{self._name}/{kind}/{number}/{place}" for place in range(BATCH_KEYS)]
