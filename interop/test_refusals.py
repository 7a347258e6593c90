"""Bad input: each kind is refused with its code, and the message names the field, the value
and the limit. Nothing that was acknowledged is lost, and nothing is added."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from support.client import SERVING, Client
from support.server import Server

INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
NOT_FOUND = grpc.StatusCode.NOT_FOUND

Call = Callable[[Client], Any]

LONG_KEY = "x" * 65_537
MANY_KEYS = [str(number) for number in range(100_001)]
# 18 MB in keys that are each within their limit.
LARGE_BATCH = ["x" * 60_000 + str(number) for number in range(300)]


def quoted(name: str) -> str:
    """The name as messages show it; cut short if it is too long."""
    return json.dumps(name[:128], ensure_ascii=False)[1:-1]


def creating(name: str = "new", **spec: Any) -> Call:
    spec = {"capacity": 1000, "false_positive_rate": 0.01} | spec
    return lambda client: client.create_filter(name, **spec)


def streaming(*batches: list[str], filter: str = "") -> Call:
    return lambda client: list(client.query_and_add_stream(batches, filter=filter))


# The call, the code, and what the message must say: the field, the value, the limit.
REFUSED: dict[str, tuple[Call, grpc.StatusCode, list[str]]] = (
    {
        "Query, empty key": (lambda c: c.query(""), INVALID, ["key", "0", "1 to 65536"]),
        "Add, empty key": (lambda c: c.add(""), INVALID, ["key", "0", "1 to 65536"]),
        "QueryAndAdd, empty key": (
            lambda c: c.query_and_add(""),
            INVALID,
            ["key", "0", "1 to 65536"],
        ),
        "Query, long key": (lambda c: c.query(LONG_KEY), INVALID, ["key", "65537", "65536"]),
        "Add, long key": (lambda c: c.add(LONG_KEY), INVALID, ["key", "65537", "65536"]),
        "QueryAndAdd, long key": (
            lambda c: c.query_and_add(LONG_KEY),
            INVALID,
            ["key", "65537", "65536"],
        ),
        "QueryBatch, empty key": (
            lambda c: c.query_batch(["a", ""]),
            INVALID,
            ["keys[1]", "0", "1 to 65536"],
        ),
        "QueryBatch, long key": (
            lambda c: c.query_batch(["a", "b", LONG_KEY]),
            INVALID,
            ["keys[2]", "65537", "65536"],
        ),
        "QueryBatch, many keys": (
            lambda c: c.query_batch(MANY_KEYS),
            INVALID,
            ["keys", "100001", "100000"],
        ),
        "AddBatch, many keys": (
            lambda c: c.add_batch(MANY_KEYS),
            INVALID,
            ["keys", "100001", "100000"],
        ),
        "QueryAndAddBatch, many keys": (
            lambda c: c.query_and_add_batch(MANY_KEYS),
            INVALID,
            ["keys", "100001", "100000"],
        ),
        "QueryAndAddStream, many keys": (
            streaming(MANY_KEYS),
            INVALID,
            ["keys", "100001", "100000"],
        ),
        "QueryAndAddStream, empty key": (streaming([""]), INVALID, ["keys[0]", "0", "1 to 65536"]),
        "AddBatch, large message": (
            lambda c: c.add_batch(LARGE_BATCH),
            EXHAUSTED,
            ["message", "16777216"],
        ),
        "QueryAndAddStream, large message": (
            streaming(LARGE_BATCH),
            EXHAUSTED,
            ["message", "16777216"],
        ),
        "Query, unknown filter": (lambda c: c.query("a", filter="other"), NOT_FOUND, ["other"]),
        "Add, unknown filter": (lambda c: c.add("a", filter="other"), NOT_FOUND, ["other"]),
        "QueryAndAdd, unknown filter": (
            lambda c: c.query_and_add("a", filter="other"),
            NOT_FOUND,
            ["other"],
        ),
        "QueryBatch, unknown filter": (
            lambda c: c.query_batch(["a"], filter="other"),
            NOT_FOUND,
            ["other"],
        ),
        "AddBatch, unknown filter": (
            lambda c: c.add_batch(["a"], filter="other"),
            NOT_FOUND,
            ["other"],
        ),
        "QueryAndAddBatch, unknown filter": (
            lambda c: c.query_and_add_batch(["a"], filter="other"),
            NOT_FOUND,
            ["other"],
        ),
        "QueryAndAddStream, unknown filter": (
            streaming(["a"], filter="other"),
            NOT_FOUND,
            ["other"],
        ),
        "Store, unknown filter": (lambda c: c.store("other"), NOT_FOUND, ["other"]),
        "GetFilter, unknown filter": (lambda c: c.get_filter("other"), NOT_FOUND, ["other"]),
        "DeleteFilter, unknown filter": (lambda c: c.delete_filter("other"), NOT_FOUND, ["other"]),
        "DeleteFilter, no name": (lambda c: c.delete_filter(""), INVALID, ["name", "1 to 128"]),
        "ListFilters, negative page size": (
            lambda c: c.list_filters(page_size=-1),
            INVALID,
            ["page_size", "-1", "at least 0"],
        ),
        "CreateFilter, capacity 0": (
            creating(capacity=0),
            INVALID,
            ["capacity", "0", "at least 1"],
        ),
        "CreateFilter, hash_count 65": (
            creating(hash_count=65),
            INVALID,
            ["hash_count", "65", "64"],
        ),
        "CreateFilter, unknown layout": (creating(layout=9), INVALID, ["layout", "9", "LAYOUT_"]),
        "CreateFilter, unknown hash function": (
            creating(hash_function=9),
            INVALID,
            ["hash_function", "9", "HASH_FUNCTION_"],
        ),
        "CreateFilter, more bits than there can be": (
            creating(bit_count=(1 << 64) - 1, false_positive_rate=0),
            INVALID,
            ["bit_count", str((1 << 64) - 1), "it must be 1 to"],
        ),
        "CreateFilter, more memory than the budget": (
            creating(bit_count=1 << 46, false_positive_rate=0),
            EXHAUSTED,
            [str(1 << 43), "--max-memory"],
        ),
        "CreateFilter, too few bits for the rate": (
            creating(bit_count=64, false_positive_rate=0.001),
            INVALID,
            ["bit_count", "false_positive_rate"],
        ),
    }
    | {
        f"CreateFilter, false_positive_rate {rate}": (
            creating(false_positive_rate=rate),
            INVALID,
            ["false_positive_rate", shown, "above 0 and below 1"],
        )
        for rate, shown in (
            (0.0, "0"),
            (-0.5, "-0.5"),
            (1.0, "1"),
            (1.5, "1.5"),
            (math.nan, "NaN"),
            (math.inf, "inf"),
        )
    }
    | {
        f"{method}, name {name[:20]!r}": (call, INVALID, [field, quoted(name), "1 to 128"])
        for name in ("../x", "a/b", "/etc/x", "..\\x", "a b", "é", "x" * 129)
        for method, field, call in (
            ("CreateFilter", "name", creating(name)),
            ("GetFilter", "name", lambda c, name=name: c.get_filter(name)),
            ("DeleteFilter", "name", lambda c, name=name: c.delete_filter(name)),
            ("Query", "filter", lambda c, name=name: c.query("a", filter=name)),
            (
                "QueryAndAddBatch",
                "filter",
                lambda c, name=name: c.query_and_add_batch(["a"], filter=name),
            ),
            ("Store", "filter", lambda c, name=name: c.store(name)),
        )
    }
)


@pytest.fixture(scope="module", params=["interval", "snapshot"])
def victim(request: pytest.FixtureRequest, programs, contract, tmp_path_factory) -> Any:
    """One server for the whole table, so that what one refusal breaks the next ones notice. With
    a log and without: calls for one key are answered in another way."""
    data_dir = tmp_path_factory.mktemp("refusals") / "inner" / "data"
    flags = ("--capacity=1000000", "--false-positive-rate=1e-6", "--max-memory=64GiB")
    flags += (f"--durability={request.param}",)
    with Server(programs.server, contract, data_dir, *flags) as server:
        server.client.add("kept")
        yield server
        assert server.stop() == 0


@pytest.mark.parametrize("case", REFUSED)
def test_refused(victim: Server, case: str) -> None:
    call, code, expected = REFUSED[case]
    before = victim.client.get_filter()
    files = everything_under(victim.data_dir.parent)
    with pytest.raises(grpc.RpcError) as refused:
        call(victim.client)
    assert refused.value.code() == code, refused.value
    details = refused.value.details()
    for words in expected:
        assert words in details
    assert len(details) < 1000, "the message repeats the input at length"

    after = victim.client.get_filter()
    assert (after.version, after.keys_added) == (before.version, before.keys_added)
    assert [filter.name for filter in victim.client.list_filters().filters] == ["default"]
    assert everything_under(victim.data_dir.parent) == files, "a refused call left a file"
    assert victim.client.query("kept") is True
    assert victim.client.health() == SERVING


def everything_under(directory: Path) -> set[Path]:
    return set(directory.rglob("*"))


@pytest.mark.parametrize(
    ("method", "field", "message"),
    [
        # Field number and wire type, length, two bytes that no UTF-8 text contains.
        ("Query", "key", b"\x12\x02\xff\xfe"),
        ("Add", "key", b"\x12\x02\xff\xfe"),
        ("QueryAndAdd", "key", b"\x12\x02\xff\xfe"),
        ("QueryBatch", "keys", b"\x12\x01a\x12\x02\xff\xfe"),
        ("AddBatch", "keys", b"\x12\x01a\x12\x02\xff\xfe"),
        ("QueryAndAddBatch", "keys", b"\x12\x01a\x12\x02\xff\xfe"),
        ("Query", "filter", b"\x0a\x02\xff\xfe\x12\x01a"),
        # A surrogate, an overlong form, and a character that is cut short.
        ("Query", "key", b"\x12\x03\xed\xa0\x80"),
        ("Query", "key", b"\x12\x02\xc0\x80"),
        ("Query", "key", b"\x12\x02\xe2\x82"),
    ],
)
def test_bytes_that_are_not_utf8(victim: Server, method: str, field: str, message: bytes) -> None:
    raw = victim.client.channel.unary_unary(f"/seenset.v1.DedupService/{method}")
    with pytest.raises(grpc.RpcError) as refused:
        raw(message, timeout=30)
    assert refused.value.code() == INVALID, refused.value
    assert field in refused.value.details()
    assert "UTF-8" in refused.value.details()
    assert victim.client.query("a") is False, "a refused batch added its good key"


@pytest.mark.parametrize("message", [b"\xff", b"\x12\x05a", b"\x08\x01\x12"])
def test_bytes_that_are_no_message(victim: Server, message: bytes) -> None:
    raw = victim.client.channel.unary_unary("/seenset.v1.DedupService/QueryAndAdd")
    with pytest.raises(grpc.RpcError) as refused:
        raw(message, timeout=30)
    assert refused.value.code() == INVALID, refused.value


def test_bytes_that_are_not_utf8_in_a_stream(victim: Server) -> None:
    raw = victim.client.channel.stream_stream("/seenset.v1.DedupService/QueryAndAddStream")
    answers = raw(iter([b"\x12\x06stream", b"\x12\x02\xff\xfe", b"\x12\x05after"]), timeout=30)
    assert next(answers) == b"\x0a\x01\x00", "the good batch before it is answered"
    with pytest.raises(grpc.RpcError) as refused:
        next(answers)
    assert refused.value.code() == INVALID, refused.value
    assert victim.client.query_batch(["stream", "after"]) == [True, False]


@pytest.mark.parametrize("bad", ["", LONG_KEY], ids=["empty", "long"])
@pytest.mark.parametrize("method", ["add_batch", "query_and_add_batch", "query_and_add_stream"])
@pytest.mark.parametrize("place", [0, 500, 1000])
def test_a_refused_batch_adds_none_of_its_keys(
    victim: Server, bad: str, method: str, place: int
) -> None:
    good = [f"{method}/{place}/{len(bad)}/{number}" for number in range(1000)]
    batch = [*good[:place], bad, *good[place:]]
    with pytest.raises(grpc.RpcError) as refused:
        if method == "query_and_add_stream":
            list(victim.client.query_and_add_stream([batch]))
        else:
            getattr(victim.client, method)(batch)
    assert refused.value.code() == INVALID
    assert f"keys[{place}]" in refused.value.details()
    assert victim.client.query_batch(good) == [False] * len(good)


def test_an_unknown_method_is_unimplemented(victim: Server) -> None:
    raw = victim.client.channel.unary_unary("/seenset.v1.DedupService/Forget")
    with pytest.raises(grpc.RpcError) as refused:
        raw(b"", timeout=30)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED
