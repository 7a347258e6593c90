"""The Python client of the README, as it stands there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from support.contract import Contract
from support.programs import run
from support.relay import Relay
from support.server import Server

README = Path(__file__).parents[1] / "README.md"
ADDRESS = '"127.0.0.1:9090"'
EXPECTED = [
    "new  https://example.com/a",
    "new  https://example.com/b",
    "seen https://example.com/a",
]


def example() -> str:
    """The one block of Python in the README that asks the service."""
    blocks = re.findall(r"^```python\n(.*?)^```$", README.read_text(), re.MULTILINE | re.DOTALL)
    [block] = [block for block in blocks if "QueryAndAddBatchRequest" in block]
    assert block.count(ADDRESS) == 1
    return block


def run_example(address: str, contract: Contract) -> list[str]:
    program = example().replace(ADDRESS, repr(address))
    stubs = Path(contract.dedup.__file__).parents[2]
    result = run(sys.executable, "-c", program, PYTHONPATH=str(stubs), GRPC_VERBOSITY="NONE")
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


@pytest.mark.parametrize("lost", [0, 1, 3])
def test_a_reply_that_is_lost_costs_no_page(server: Server, contract: Contract, lost: int) -> None:
    with Relay(server.address, lost) as relay:
        assert run_example(relay.address, contract) == EXPECTED
        assert relay.lost == lost
    assert server.client.get_filter().keys_added == 2
    # A run of its own is another request, and is told what is true by now.
    seen = ["seen" + line[4:] for line in EXPECTED]
    assert run_example(server.address, contract) == seen


def test_without_the_id_the_same_loss_costs_all_pages(server: Server, contract: Contract) -> None:
    """What the test above would miss if the relay lost nothing, or the server forgot the id."""
    program = example()
    assert program.count(", request_id=uuid.uuid4().hex") == 1
    program = program.replace(", request_id=uuid.uuid4().hex", "")
    stubs = Path(contract.dedup.__file__).parents[2]
    with Relay(server.address, 1) as relay:
        program = program.replace(ADDRESS, repr(relay.address))
        result = run(sys.executable, "-c", program, PYTHONPATH=str(stubs), GRPC_VERBOSITY="NONE")
    assert result.stdout.splitlines() == ["seen" + line[4:] for line in EXPECTED], result.stderr
