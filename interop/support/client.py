"""A Python client on the generated stubs: every call with a deadline."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from .contract import Contract

DEADLINE_SECONDS = 60
# What a message of an import has of the file.
PIECE_BYTES = 32 << 10
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


class Client:
    """One connection to one server."""

    def __init__(
        self, contract: Contract, address: str, deadline: float = DEADLINE_SECONDS
    ) -> None:
        self.contract = contract
        self.deadline = deadline
        self.channel = grpc.insecure_channel(
            address,
            options=[
                # Or channels to one address share a connection, and callers that should race
                # queue up in it.
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", -1),
                ("grpc.enable_http_proxy", 0),
                # A server that comes back is found at once, not after a minute.
                ("grpc.max_reconnect_backoff_ms", 200),
            ],
        )
        self.dedup = contract.dedup_grpc.DedupServiceStub(self.channel)
        self.filters = contract.filters_grpc.FilterServiceStub(self.channel)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.channel.close()

    def call(self, method: str, request: Any) -> Any:
        """Calls a method of either service by its name."""
        service = self.dedup if hasattr(self.dedup, method) else self.filters
        return getattr(service, method)(request, timeout=self.deadline)

    def query(self, key: str, filter: str = "") -> bool:
        return self._seen("Query", self.contract.dedup.QueryRequest(filter=filter, key=key))

    def add(self, key: str, filter: str = "") -> None:
        self.call("Add", self.contract.dedup.AddRequest(filter=filter, key=key))

    def query_and_add(self, key: str, filter: str = "") -> bool:
        request = self.contract.dedup.QueryAndAddRequest(filter=filter, key=key)
        return self._seen("QueryAndAdd", request)

    def query_batch(self, keys: Sequence[str], filter: str = "") -> list[bool]:
        request = self.contract.dedup.QueryBatchRequest(filter=filter, keys=keys)
        return list(self.call("QueryBatch", request).seen)

    def add_batch(self, keys: Sequence[str], filter: str = "") -> None:
        self.call("AddBatch", self.contract.dedup.AddBatchRequest(filter=filter, keys=keys))

    def query_and_add_batch(self, keys: Sequence[str], filter: str = "") -> list[bool]:
        request = self.contract.dedup.QueryAndAddBatchRequest(filter=filter, keys=keys)
        return list(self.call("QueryAndAddBatch", request).seen)

    def query_and_add_stream(
        self, batches: Iterable[Sequence[str]], filter: str = ""
    ) -> Iterator[list[bool]]:
        message = self.contract.dedup.QueryAndAddStreamRequest
        requests = (message(filter=filter, keys=keys) for keys in batches)
        for answer in self.dedup.QueryAndAddStream(requests, timeout=self.deadline):
            yield list(answer.seen)

    def store(self, filter: str = "") -> Any:
        return self.call("Store", self.contract.dedup.StoreRequest(filter=filter)).filters

    def create_filter(self, name: str, **spec: Any) -> Any:
        filters = self.contract.filters
        request = filters.CreateFilterRequest(name=name, spec=filters.FilterSpec(**spec))
        return self.call("CreateFilter", request).filter

    def import_filter(self, name: str, format: int, file: bytes) -> Any:
        message = self.contract.filters.ImportFilterRequest
        head = message(name=name, format=format, size_bytes=len(file))
        pieces = range(0, len(file), PIECE_BYTES)
        messages = (message(data=file[first : first + PIECE_BYTES]) for first in pieces)
        return self.call("ImportFilter", iter([head, *messages])).filter

    def get_filter(self, name: str = "") -> Any:
        return self.call("GetFilter", self.contract.filters.GetFilterRequest(name=name)).filter

    def list_filters(self, page_size: int = 0, page_token: str = "") -> Any:
        request = self.contract.filters.ListFiltersRequest(
            page_size=page_size, page_token=page_token
        )
        return self.call("ListFilters", request)

    def delete_filter(self, name: str) -> None:
        self.call("DeleteFilter", self.contract.filters.DeleteFilterRequest(name=name))

    def health(self, service: str = "") -> int:
        stub = health_pb2_grpc.HealthStub(self.channel)
        request = health_pb2.HealthCheckRequest(service=service)
        # Waits for the connection as well: right after a start there may be none yet.
        return stub.Check(request, timeout=self.deadline, wait_for_ready=True).status

    def settled_health(self, expected: int, service: str = "") -> int:
        """What health says when it says what is expected, or after some seconds: what a call has
        been told, health tells a moment later."""
        deadline = time.monotonic() + 5
        while (found := self.health(service)) != expected and time.monotonic() < deadline:
            time.sleep(0.05)
        return found

    def watch_health(self, service: str = "") -> Any:
        """The statuses as they change, as a stream that can be cancelled."""
        stub = health_pb2_grpc.HealthStub(self.channel)
        return stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=self.deadline)

    def _seen(self, method: str, request: Any) -> bool:
        response = self.call(method, request)
        # Presence is part of the contract: without it tools print an empty object.
        assert response.HasField("seen"), f"{method} left `seen` out"
        return response.seen
