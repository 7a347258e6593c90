"""Server reflection: v1 for tools of today, v1alpha for those of yesterday."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from grpc_reflection.v1alpha import reflection_pb2

from support.programs import Programs, run
from support.server import Server

SERVICES = {"seenset.v1.DedupService", "seenset.v1.FilterService", "grpc.health.v1.Health"}


@pytest.mark.parametrize("version", ["v1", "v1alpha"])
def test_both_versions_list_the_services(server: Server, version: str) -> None:
    # The messages of both versions are the same; grpcio's package has those of v1alpha.
    method = server.client.channel.stream_stream(
        f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
        request_serializer=reflection_pb2.ServerReflectionRequest.SerializeToString,
        response_deserializer=reflection_pb2.ServerReflectionResponse.FromString,
    )
    requests = [reflection_pb2.ServerReflectionRequest(list_services="")]
    (answer,) = method(iter(requests), timeout=30)
    assert SERVICES <= {service.name for service in answer.list_services_response.service}


@pytest.mark.parametrize("protocol", ["grpc-v1", "grpc-v1alpha"])
def test_buf_calls_without_the_contract(
    programs: Programs, server: Server, tmp_path: Path, protocol: str
) -> None:
    curl = [
        programs.buf,
        "curl",
        "--protocol=grpc",
        "--http2-prior-knowledge",
        f"--reflect-protocol={protocol}",
    ]
    url = f"http://{server.address}"
    listed = run(*curl, "--list-services", url, cwd=tmp_path, HOME=str(tmp_path))
    assert listed.returncode == 0, listed.stderr
    assert SERVICES <= set(listed.stdout.split())

    for seen in (False, True):
        called = run(
            *curl,
            "--data",
            json.dumps({"key": "https://example.com/"}),
            f"{url}/seenset.v1.DedupService/QueryAndAdd",
            cwd=tmp_path,
            HOME=str(tmp_path),
        )
        assert called.returncode == 0, called.stderr
        assert json.loads(called.stdout) == {"seen": seen}
