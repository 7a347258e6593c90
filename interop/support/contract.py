"""Stubs, generated from `proto/` the way a user of the Python client makes them."""

from __future__ import annotations

import importlib
import sys
from importlib.resources import files
from pathlib import Path
from types import ModuleType

from grpc_tools import protoc

PROTO = Path(__file__).parents[2] / "proto"


class Contract:
    """The generated modules: messages and stubs of both services."""

    def __init__(self, into: Path) -> None:
        sources = sorted(PROTO.rglob("*.proto"))
        assert sources, f"no .proto under {PROTO}"
        arguments = [
            "protoc",
            f"--proto_path={PROTO}",
            f"--proto_path={files('grpc_tools') / '_proto'}",
            f"--python_out={into}",
            f"--grpc_python_out={into}",
            *(str(source) for source in sources),
        ]
        assert protoc.main(arguments) == 0, "protoc refused the contract"
        sys.path.insert(0, str(into))
        self.dedup = _module("dedup_service_pb2")
        self.dedup_grpc = _module("dedup_service_pb2_grpc")
        self.filters = _module("filter_service_pb2")
        self.filters_grpc = _module("filter_service_pb2_grpc")


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"seenset.v1.{name}")
