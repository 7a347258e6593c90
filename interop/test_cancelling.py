"""Clients that cancel calls, or whose deadlines are short: no other call on their connection ends."""

from __future__ import annotations

import json
from pathlib import Path

from support.contract import PROTO
from support.programs import Programs, run
from support.server import Server

NODE_SCRIPT = Path(__file__).with_name("node") / "cancelling.js"
ROUNDS = 40
# As many calls at a time as a connection may have in flight.
CALLS = 250
# How a call may end whose caller gives up.
IMPATIENT = {"OK", "CANCELLED", "DEADLINE_EXCEEDED"}


def test_python(server: Server) -> None:
    client = server.client
    query_and_add = client.dedup.QueryAndAdd
    request = client.contract.dedup.QueryAndAddRequest
    codes: set[str] = set()
    for number in range(ROUNDS):
        # Some are cancelled, some have a deadline that passes before most of them are accepted.
        calls = [
            query_and_add.future(
                request(key=f"{number} {call}"), timeout=None if call % 2 else 0.005
            )
            for call in range(CALLS)
        ]
        for call in calls[1::2]:
            call.cancel()
        # On the same connection, with the patience of one who wants to know.
        assert query_and_add(request(key=f"patient {number}"), timeout=60).seen is False
        codes |= {call.code().name for call in calls}
    assert codes <= IMPATIENT, codes
    assert "CANCELLED" in codes


def test_node(programs: Programs, server: Server) -> None:
    command = [programs.node, NODE_SCRIPT, PROTO, server.address]
    result = run(*command, NODE_PATH=str(programs.node_modules))
    assert result.returncode == 0, result.stderr
    ended = json.loads(result.stdout)
    assert set(ended["patient"]) == {"OK"}, ended
    assert set(ended["impatient"]) <= IMPATIENT, ended
    assert sum(ended["impatient"].values()) == 100 * 40
    assert set(ended["impatient"]) & {"CANCELLED", "DEADLINE_EXCEEDED"}, ended
