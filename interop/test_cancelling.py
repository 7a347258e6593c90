"""Clients that cancel calls, or whose deadlines are short: no other call on their connection ends."""

from __future__ import annotations

import json
import queue
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from support.client import Client
from support.contract import PROTO
from support.programs import Programs, run
from support.server import Server

NODE_SCRIPT = Path(__file__).with_name("node") / "cancelling.js"
ROUNDS = 5
# As many calls at a time as a connection may have in flight.
CALLS = 250
# For what the client has to send to be on its way.
PAUSE_SECONDS = 0.2
# How a call may end whose caller gives up.
IMPATIENT = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}


def test_python(server: Server) -> None:
    client = server.client
    query_and_add = client.dedup.QueryAndAdd
    request = client.contract.dedup.QueryAndAddRequest
    codes: set[str] = set()
    # It ends with its connection, where a single call is made again by the library.
    batches: queue.Queue[str] = queue.Queue()
    stream = client.dedup.QueryAndAddStream(_batches(client, batches))
    for number in range(ROUNDS):
        # The server finds all of them cancelled when it goes on.
        server.process.send_signal(signal.SIGSTOP)
        # Some are cancelled, some have a deadline that passes.
        calls = [
            query_and_add.future(
                request(key=f"{number} {call}"), timeout=None if call % 2 else 0.005
            )
            for call in range(CALLS)
        ]
        time.sleep(PAUSE_SECONDS)
        for call in calls[1::2]:
            call.cancel()
        time.sleep(PAUSE_SECONDS)
        server.process.send_signal(signal.SIGCONT)
        # On the same connection, with the patience of one who wants to know.
        assert query_and_add(request(key=f"patient {number}"), timeout=60).seen is False
        batches.put(f"streamed {number}")
        assert list(next(stream).seen) == [False]
        codes |= {call.code().name for call in calls}
    stream.cancel()
    batches.put("")
    assert codes <= IMPATIENT, codes
    assert "CANCELLED" in codes


def _batches(client: Client, keys: queue.Queue[str]) -> Iterator[object]:
    message = client.contract.dedup.QueryAndAddStreamRequest
    while key := keys.get():
        yield message(keys=[key])


def test_node(programs: Programs, server: Server) -> None:
    command = [programs.node, NODE_SCRIPT, PROTO, server.address, server.process.pid]
    command = [str(part) for part in command]
    result = run(*command, NODE_PATH=str(programs.node_modules))
    assert result.returncode == 0, result.stderr
    ended = json.loads(result.stdout)
    assert set(ended["patient"]) == {"OK"}, ended
    # It ends with its connection, where a single call may be made again by the library.
    assert ended["streamed"] == {"OK": ended["patient"]["OK"]}, ended
    assert set(ended["impatient"]) <= IMPATIENT, ended
    assert sum(ended["impatient"].values()) == 240 * 10
    assert set(ended["impatient"]) & {"CANCELLED", "DEADLINE_EXCEEDED"}, ended
