"""Keys of any bytes, through the gRPC of Python and of Node.js, grpcurl and the command line."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
from pathlib import Path

import grpc
import pytest

from support.client import Client
from support.contract import PROTO
from support.programs import Programs, environment, run
from support.server import SMALL, Server

NODE_SCRIPT = Path(__file__).with_name("node") / "keys.js"


@pytest.fixture(params=["interval", "snapshot"])
def server(request: pytest.FixtureRequest, start) -> Server:
    """With a log and without: calls for one key are answered in another way."""
    return start(*SMALL, f"--durability={request.param}")


def test_python(client: Client) -> None:
    dedup = client.contract.dedup
    digests = [hashlib.sha1(str(number).encode()).digest() for number in range(100)]
    for digest in digests[:10]:
        for seen in (False, True):
            request = dedup.QueryAndAddRequest(binary_key=digest)
            assert client.call("QueryAndAdd", request).seen is seen
    request = dedup.QueryAndAddBatchRequest(binary_keys=digests)
    answer = client.call("QueryAndAddBatch", request)
    assert list(answer.seen) == [True] * 10 + [False] * 90
    # Text is the same key in either field.
    assert client.query_and_add("ä") is False
    text = dedup.QueryRequest(binary_key="ä".encode())
    assert client.call("Query", text).seen is True
    both = dedup.QueryRequest(key="a", binary_key=b"\xff")
    with pytest.raises(grpc.RpcError) as refused:
        client.call("Query", both)
    assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert "key has 1 bytes and binary_key has 1" in refused.value.details()


def test_node(programs: Programs, server: Server) -> None:
    command = [programs.node, NODE_SCRIPT, PROTO, server.address]
    result = run(*command, NODE_PATH=str(programs.node_modules))
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [
        *(False, False, True),
        [True, False, True],
        [True, False],
        *(False, True),
    ]


def test_grpcurl(programs: Programs, server: Server, tmp_path: Path) -> None:
    def seen(**request: object) -> object:
        method = "Batch" if "binary_keys" in request else ""
        result = run(
            *(programs.grpcurl, "-plaintext", "-max-time", "30", "-d", json.dumps(request)),
            *(server.address, f"seenset.v1.DedupService/QueryAndAdd{method}"),
            cwd=tmp_path,
        )
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["seen"]

    encoded = [base64.b64encode(key).decode() for key in (b"\xff\xfe", b"\xfd\xfc", b"text")]
    assert [seen(binary_key=key) for key in encoded] == [False] * 3
    assert seen(key="text") is True
    assert seen(binary_keys=[*encoded, base64.b64encode(b"\0").decode()]) == [True] * 3 + [False]


def test_files(programs: Programs, server: Server) -> None:
    def dedup(flag: str, keys: bytes) -> bytes:
        result = subprocess.run(
            [programs.cli, "--server", server.address, "dedup", flag],
            input=keys,
            env=environment(),
            capture_output=True,
            timeout=60,
            check=True,
        )
        return result.stdout

    digests = [hashlib.sha1(str(number).encode()).digest() for number in range(3)]
    binary = [len(digest).to_bytes(4, "big") + digest for digest in digests]
    assert dedup("--binary", binary[0] + binary[1]) == binary[0] + binary[1]
    hexadecimal = [f"{digest.hex()}\n".encode() for digest in digests]
    assert dedup("--hex", b"".join(hexadecimal)) == hexadecimal[2]
    assert dedup("--binary", b"".join(binary)) == b""
    assert dedup("--null", b"a\nb\0\xff\0a\nb\0") == b"a\nb\0\xff\0"
