"""Every rpc through Python's grpcio, on stubs generated from `proto/`."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import grpc
import pytest

from support.client import SERVING, Client
from support.server import SMALL, Server


@pytest.fixture(params=["interval", "snapshot"])
def server(request: pytest.FixtureRequest, start) -> Server:
    """With a log and without: calls for one key are answered in another way."""
    return start(*SMALL, f"--durability={request.param}")


def test_one_key(client: Client) -> None:
    assert client.query("a") is False
    assert client.query("a") is False, "a query marked the key"
    assert client.query_and_add("a") is False
    assert client.query_and_add("a") is True
    assert client.query("a") is True
    client.add("b")
    client.add("b")
    assert client.query("b") is True


def test_the_empty_filter_name_means_default(client: Client) -> None:
    client.add("a")
    assert client.query("a", filter="default") is True


def test_batches_answer_in_order(client: Client) -> None:
    client.add_batch(["a", "c"])
    assert client.query_batch(["a", "b", "c", "b"]) == [True, False, True, False]
    # A key that stands in the batch twice is new once.
    assert client.query_and_add_batch(["b", "c", "b", "d"]) == [False, True, True, False]
    assert client.query_batch(["a", "b", "c", "d"]) == [True] * 4
    assert client.query_and_add_batch([]) == []


def test_keys_are_bytes_not_text(client: Client) -> None:
    keys = ["é", "e\u0301", "É", "a\0b", "a", " a", "a\n", "x" * 65_536, "x" * 65_535, "😀"]
    assert client.query_and_add_batch(keys) == [False] * len(keys)
    assert client.query_batch(keys) == [True] * len(keys)


def test_the_stream_answers_before_the_next_request(client: Client) -> None:
    """Each answer comes while the stream is open: a crawler waits for it before it sends."""
    requests: queue.Queue[list[str] | None] = queue.Queue()

    def batches() -> Iterator[list[str]]:
        while (keys := requests.get(timeout=30)) is not None:
            yield keys

    answers = client.query_and_add_stream(batches())
    requests.put(["a", "b"])
    assert next(answers) == [False, False]
    requests.put([])
    assert next(answers) == []
    requests.put(["b", "c", "c"])
    assert next(answers) == [True, False, True]
    requests.put(None)
    assert list(answers) == []


def test_the_stream_keeps_the_order_of_many_batches(client: Client) -> None:
    batches = [[f"{batch}/{key}" for key in range(batch % 7)] + ["same"] for batch in range(500)]
    answers = list(client.query_and_add_stream(batches))
    assert [len(answer) for answer in answers] == [len(batch) for batch in batches]
    last = [answer[-1] for answer in answers]
    assert last == [False] + [True] * 499


def test_store_tells_what_was_written(client: Client) -> None:
    client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    client.add("a", filter="pages")
    version = client.get_filter("pages").version
    begun = time.time()
    stored = {entry.name: entry for entry in client.store()}
    assert list(stored) == ["default", "pages"]
    assert stored["pages"].version == version
    assert stored["pages"].written_bytes > 0
    assert 0 <= stored["pages"].duration.ToNanoseconds() < 60e9
    (one,) = client.store("pages")
    assert (one.name, one.version) == ("pages", version)
    shown = client.get_filter("pages")
    assert shown.last_store_version == version
    assert abs(shown.last_store_time.ToNanoseconds() / 1e9 - begun) < 60


def test_a_filter_is_made_shown_and_removed(client: Client) -> None:
    filters = client.contract.filters
    made = client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    assert made.name == "pages"
    # Resolved: nothing is left at zero.
    assert made.spec.capacity == 1000
    assert made.spec.false_positive_rate == 0.01
    assert made.spec.bit_count >= 9_000
    assert 1 <= made.spec.hash_count <= 64
    assert made.spec.layout == filters.LAYOUT_BLOCKED
    assert made.spec.hash_function == filters.HASH_FUNCTION_SIPHASH_1_3_128
    assert made.memory_bytes >= made.spec.bit_count // 8
    assert (made.keys_added, made.fill_ratio) == (0, 0)
    assert abs(made.create_time.ToNanoseconds() / 1e9 - time.time()) < 60

    client.query_and_add_batch(["a", "b", "a"], filter="pages")
    shown = client.get_filter("pages")
    assert shown.keys_added == 2
    assert shown.version == made.version + 1, "one batch is one version"
    assert 0 < shown.fill_ratio < 0.01
    assert 0 <= shown.predicted_false_positive_rate < 0.01
    # Filters do not share keys.
    assert client.query("a") is False

    client.delete_filter("pages")
    with pytest.raises(grpc.RpcError) as gone:
        client.query("a", filter="pages")
    assert gone.value.code() == grpc.StatusCode.NOT_FOUND
    # A new filter under the name knows nothing of the old one.
    client.create_filter("pages", capacity=1000, false_positive_rate=0.01)
    assert client.query("a", filter="pages") is False


def test_a_filter_past_its_capacity_says_so(client: Client) -> None:
    plain = client.contract.filters.Plain()
    client.create_filter("pages", capacity=1000, false_positive_rate=0.01, plain=plain)
    client.add_batch([f"https://example.com/{page}" for page in range(3000)], filter="pages")
    shown = client.get_filter("pages")
    assert shown.is_full
    assert 2800 < shown.estimated_keys < 3200
    measured = shown.measured_false_positive_rate
    assert measured.rate == measured.canaries_seen / measured.canaries
    assert 0.01 < measured.lowest < measured.rate < measured.highest
    # Another secret each time: six standard deviations of the count.
    expected = shown.predicted_false_positive_rate * measured.canaries
    assert abs(measured.canaries_seen - expected) < 6 * expected**0.5
    # Not known for five minutes yet.
    assert not shown.HasField("last_hour")
    # Nor are canaries queries of anybody: nothing has changed.
    assert client.get_filter("pages") == shown


def test_a_filter_by_its_bits(client: Client) -> None:
    filters = client.contract.filters
    made = client.create_filter(
        "bits",
        capacity=1000,
        bit_count=1 << 20,
        hash_count=5,
        layout=filters.LAYOUT_CLASSIC,
        hash_function=filters.HASH_FUNCTION_XXH3_128,
    )
    assert (made.spec.bit_count, made.spec.hash_count) == (1 << 20, 5)
    assert made.spec.layout == filters.LAYOUT_CLASSIC
    assert made.spec.hash_function == filters.HASH_FUNCTION_XXH3_128
    assert 0 < made.spec.false_positive_rate < 1e-6
    assert client.query_and_add_batch(["a", "b"], filter="bits") == [False, False]
    assert client.query_batch(["a", "b", "c"], filter="bits") == [True, True, False]


def test_making_a_filter_again_changes_nothing(client: Client) -> None:
    spec = {"capacity": 1000, "false_positive_rate": 0.01}
    made = client.create_filter("pages", **spec)
    client.add("a", filter="pages")
    again = client.create_filter("pages", **spec)
    assert (again.spec, again.create_time) == (made.spec, made.create_time)
    assert client.query("a", filter="pages") is True
    with pytest.raises(grpc.RpcError) as other:
        client.create_filter("pages", **spec | {"capacity": 1001})
    assert other.value.code() == grpc.StatusCode.ALREADY_EXISTS
    assert "pages" in other.value.details()
    assert client.query("a", filter="pages") is True


def test_pages_of_filters(client: Client) -> None:
    names = [f"filter-{number:02}" for number in range(25)]
    for name in reversed(names):
        client.create_filter(name, capacity=100, false_positive_rate=0.1)
    names = sorted([*names, "default"])

    found, token, pages = [], "", 0
    while True:
        page = client.list_filters(page_size=10, page_token=token)
        assert len(page.filters) <= 10
        found += [filter.name for filter in page.filters]
        pages += 1
        token = page.next_page_token
        if not token:
            break
    assert (found, pages) == (names, 3)
    everything = client.list_filters()
    assert [filter.name for filter in everything.filters] == names
    assert everything.next_page_token == ""


def test_health_of_each_service(client: Client) -> None:
    for service in ("", "seenset.v1.DedupService", "seenset.v1.FilterService"):
        assert client.health(service) == SERVING
    with pytest.raises(grpc.RpcError) as unknown:
        client.health("seenset.v1.Other")
    assert unknown.value.code() == grpc.StatusCode.NOT_FOUND


def test_the_configured_limits_count(start) -> None:
    client = start(*SMALL, "--max-key-bytes=10", "--max-batch-keys=3").client
    assert client.query_and_add_batch(["x" * 10, "b", "c"]) == [False] * 3
    for refused, limit in ((["x" * 11], "10"), (["a", "b", "c", "d"], "3")):
        with pytest.raises(grpc.RpcError) as error:
            client.add_batch(refused)
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert limit in error.value.details()
