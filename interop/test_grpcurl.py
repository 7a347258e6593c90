"""The real grpcurl, with nothing but the address: no `.proto` at hand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from support.contract import PROTO
from support.programs import Programs, run
from support.server import Server

# grpcurl's exit code is 64 and the status code.
INVALID_ARGUMENT, NOT_FOUND = 64 + 3, 64 + 5


class Grpcurl:
    def __init__(self, program: Path, address: str, cwd: Path) -> None:
        self.command = [program, "-plaintext", "-max-time", "30"]
        self.address = address
        self.cwd = cwd

    def __call__(self, *arguments: str, data: str | None = None, code: int = 0) -> str:
        """What it prints; on standard error if it fails as expected."""
        flags = [] if data is None else ["-d", data]
        result = run(*self.command, *flags, self.address, *arguments, cwd=self.cwd)
        assert result.returncode == code, result.stdout + result.stderr
        return result.stderr if code else result.stdout

    def dedup(self, method: str, code: int = 0, **request: object) -> str:
        return self(f"seenset.v1.DedupService/{method}", data=json.dumps(request), code=code)

    def filters(self, method: str, code: int = 0, **request: object) -> str:
        return self(f"seenset.v1.FilterService/{method}", data=json.dumps(request), code=code)


@pytest.fixture
def grpcurl(programs: Programs, server: Server, tmp_path: Path) -> Grpcurl:
    empty = tmp_path / "empty"
    empty.mkdir()
    return Grpcurl(programs.grpcurl, server.address, empty)


def test_it_is_the_release_that_knows_only_v1alpha(programs: Programs) -> None:
    result = run(programs.grpcurl, "-version")
    assert "v1.8.6" in result.stdout + result.stderr


def test_list_shows_every_service(grpcurl: Grpcurl) -> None:
    services = grpcurl("list").split()
    for service in (
        "grpc.health.v1.Health",
        "seenset.v1.DedupService",
        "seenset.v1.FilterService",
    ):
        assert service in services
    assert grpcurl("list", "seenset.v1.DedupService").split() == [
        f"seenset.v1.DedupService.{method}"
        for method in (
            "Add",
            "AddBatch",
            "Query",
            "QueryAndAdd",
            "QueryAndAddBatch",
            "QueryAndAddStream",
            "QueryBatch",
            "Remove",
            "RemoveBatch",
            "Store",
        )
    ]
    assert grpcurl("list", "seenset.v1.FilterService").split() == [
        f"seenset.v1.FilterService.{method}"
        for method in (
            "CopyFilter",
            "CreateFilter",
            "DeleteFilter",
            "Explain",
            "ExportFilter",
            "FinishRebuild",
            "GetFilter",
            "ImportFilter",
            "ListFilters",
            "MergeFilters",
            "RenameFilter",
            "ResetFilter",
            "StartRebuild",
        )
    ]


def test_describe_shows_every_comment_of_the_contract(grpcurl: Grpcurl) -> None:
    for source in PROTO.rglob("*.proto"):
        text = source.read_text()
        symbols = re.findall(r"^(?:service|message|enum) (\w+)", text, re.MULTILINE)
        assert symbols, source
        described = "".join(grpcurl("describe", f"seenset.v1.{symbol}") for symbol in symbols)
        shown = {line.strip() for line in described.splitlines()}
        comments = {line.strip() for line in text.splitlines() if line.strip().startswith("//")}
        assert len(comments) > 20, source
        assert comments - shown == set(), source


def test_query_and_add_prints_false_and_then_true(grpcurl: Grpcurl) -> None:
    url = "https://example.com/"
    assert grpcurl.dedup("Query", key=url) == '{\n  "seen": false\n}\n'
    assert grpcurl.dedup("QueryAndAdd", key=url) == '{\n  "seen": false\n}\n'
    assert grpcurl.dedup("QueryAndAdd", key=url) == '{\n  "seen": true\n}\n'
    assert grpcurl.dedup("Query", key=url) == '{\n  "seen": true\n}\n'


def test_the_other_dedup_calls(grpcurl: Grpcurl) -> None:
    def seen(text: str) -> list[bool]:
        return json.loads(text)["seen"]

    assert json.loads(grpcurl.dedup("Add", key="a")) == {}
    assert json.loads(grpcurl.dedup("AddBatch", keys=["b", "c"])) == {}
    assert seen(grpcurl.dedup("QueryBatch", keys=["a", "b", "c", "d"])) == [True, True, True, False]
    assert seen(grpcurl.dedup("QueryAndAddBatch", keys=["d", "a", "d"])) == [False, True, True]
    (stored,) = json.loads(grpcurl.dedup("Store"))["filters"]
    assert stored["name"] == "default"
    assert int(stored["version"]) > 0
    assert int(stored["writtenBytes"]) > 0
    assert re.fullmatch(r"\d+(\.\d+)?s", stored["duration"])


def test_the_stream_answers_each_message(grpcurl: Grpcurl) -> None:
    messages = '{"keys": ["a", "b"]} {"keys": ["b", "c"]} {"keys": ["c"]}'
    output = grpcurl("seenset.v1.DedupService/QueryAndAddStream", data=messages)
    answers = [json.loads(part + "}") for part in output.split("}") if part.strip()]
    assert [answer["seen"] for answer in answers] == [[False, False], [True, False], [True]]


def test_the_filter_calls(grpcurl: Grpcurl) -> None:
    spec = {"capacity": 1000, "false_positive_rate": 0.01, "layout": "LAYOUT_CLASSIC"}
    created = json.loads(grpcurl.filters("CreateFilter", name="pages", spec=spec))["filter"]
    assert created["name"] == "pages"
    assert created["spec"]["capacity"] == "1000"
    assert created["spec"]["layout"] == "LAYOUT_CLASSIC"
    assert int(created["spec"]["bitCount"]) > 0
    assert created["spec"]["hashCount"] > 0

    # The same again changes nothing; something else under the name is refused.
    again = json.loads(grpcurl.filters("CreateFilter", name="pages", spec=spec))["filter"]
    assert again["createTime"] == created["createTime"]
    other = grpcurl.filters("CreateFilter", name="pages", spec=spec | {"capacity": 7}, code=64 + 6)
    assert "Code: AlreadyExists" in other

    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="pages", key="a")
    shown = json.loads(grpcurl.filters("GetFilter", name="pages"))["filter"]
    assert shown["keysAdded"] == "1"
    # Asked, predicted and measured; an int64 is a string in JSON.
    assert shown["spec"]["falsePositiveRate"] == 0.01
    assert 0 < shown["predictedFalsePositiveRate"] < 0.01
    measured = shown["measuredFalsePositiveRate"]
    assert (measured["rate"], measured["lowest"]) == (0, 0)
    assert 3e-4 < measured["highest"] < 4e-4
    assert (measured["canaries"], measured["canariesSeen"]) == ("10000", "0")
    assert (shown["estimatedKeys"], shown["isFull"]) == ("1", False)
    listed = json.loads(grpcurl.filters("ListFilters"))["filters"]
    assert [filter["name"] for filter in listed] == ["default", "pages"]
    assert "measuredFalsePositiveRate" not in listed[1]
    grpcurl.filters("RenameFilter", name="pages", new_name="default", code=64 + 6)
    grpcurl.filters("RenameFilter", name="pages", new_name="old")
    grpcurl.filters("RenameFilter", name="old", new_name="pages")
    copy = json.loads(grpcurl.filters("CopyFilter", name="pages", new_name="copy"))["filter"]
    assert copy["keysAdded"] == "1"
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="copy", key="b")
    merged = json.loads(grpcurl.filters("MergeFilters", source="copy", target="pages"))["filter"]
    assert merged["keysAdded"] == "2"
    differs = grpcurl.filters("MergeFilters", source="copy", target="default", code=64 + 9)
    assert "differ in capacity" in differs
    grpcurl.filters("DeleteFilter", name="copy")
    reset = json.loads(grpcurl.filters("ResetFilter", name="pages"))["filter"]
    assert "keysAdded" not in reset
    assert '"seen": false' in grpcurl.dedup("Query", filter="pages", key="a")
    names = {"name": "pages", "new_name": "larger"}
    larger = grpcurl.filters("StartRebuild", **names, spec=spec | {"capacity": 5000})
    assert json.loads(larger)["filter"]["rebuilds"] == "pages"
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="pages", key="a")
    assert '"seen": true' in grpcurl.dedup("Query", filter="larger", key="a")
    rebuilt = json.loads(grpcurl.filters("FinishRebuild", **names))["filter"]
    assert (rebuilt["name"], rebuilt["spec"]["capacity"]) == ("pages", "5000")
    assert '"seen": true' in grpcurl.dedup("Query", filter="pages", key="a")
    assert json.loads(grpcurl.filters("DeleteFilter", name="pages")) == {}
    gone = grpcurl.filters("GetFilter", name="pages", code=NOT_FOUND)
    assert "Code: NotFound" in gone


def test_keys_are_removed_from_a_counting_filter(grpcurl: Grpcurl) -> None:
    spec = {"capacity": 1000, "false_positive_rate": 1e-9, "counting": {}}
    created = json.loads(grpcurl.filters("CreateFilter", name="fetched", spec=spec))["filter"]
    assert created["spec"]["counting"] == {}
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="fetched", key="a")
    assert '"removed": true' in grpcurl.dedup("Remove", filter="fetched", key="a")
    assert '"removed": false' in grpcurl.dedup("Remove", filter="fetched", key="a")
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="fetched", key="a")
    plain = grpcurl.dedup("Remove", key="a", code=64 + 9)
    assert "Code: FailedPrecondition" in plain
    assert "does not count" in plain


def test_keys_of_an_aging_filter_are_asked_for_by_their_age(grpcurl: Grpcurl) -> None:
    aging = {"max_age": "3600s", "refresh": True}
    spec = {"capacity": 1000, "false_positive_rate": 1e-9, "aging": aging}
    created = json.loads(grpcurl.filters("CreateFilter", name="fresh", spec=spec))["filter"]
    assert created["spec"]["aging"] == {"maxAge": "3600s", "slices": 8, "refresh": True}
    young = {"filter": "fresh", "key": "a", "max_age": "600s"}
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", **young)
    assert '"seen": true' in grpcurl.dedup("Query", **young)
    old = grpcurl.dedup("Query", filter="fresh", key="a", max_age="3601s", code=64 + 3)
    assert "Code: InvalidArgument" in old
    assert "max_age is 3601s; it must be above 0 and at most 3600s" in old
    plain = grpcurl.dedup("Query", key="a", max_age="1s", code=64 + 9)
    assert "does not age" in plain


def test_a_scaling_filter_tells_how_far_it_may_grow(grpcurl: Grpcurl) -> None:
    spec = {"capacity": 1000, "false_positive_rate": 0.01}
    grows = spec | {"scaling": {"max_memory_bytes": 1 << 20}}
    created = json.loads(grpcurl.filters("CreateFilter", name="grows", spec=grows))["filter"]
    resolved = {"growth": 2, "maxMemoryBytes": str(1 << 20), "onFull": "ON_FULL_SCALE"}
    assert created["spec"]["scaling"] == resolved
    layers = created["layers"]
    assert (layers["layers"], layers["fitsBudget"]) == (1, True)
    assert int(layers["maxCapacity"]) > 1000
    assert int(created["memoryBytes"]) < int(layers["maxMemoryBytes"]) <= 1 << 20
    rejects = spec | {"scaling": {"on_full": "ON_FULL_REJECT"}}
    created = json.loads(grpcurl.filters("CreateFilter", name="rejects", spec=rejects))["filter"]
    assert created["spec"]["scaling"] == {"onFull": "ON_FULL_REJECT"}
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="rejects", key="a")
    assert '"seen": true' in grpcurl.dedup("QueryAndAdd", filter="rejects", key="a")
    wrong = spec | {"scaling": {"on_full": "ON_FULL_REJECT", "growth": 4}}
    refused = grpcurl.filters("CreateFilter", name="no", spec=wrong, code=64 + 3)
    assert "Code: InvalidArgument" in refused
    assert "spec.scaling.growth is 4 and scaling.on_full is reject" in refused


def test_explain_shows_what_a_filter_makes_of_a_key(grpcurl: Grpcurl) -> None:
    profile = {"name": "url-v1", "sort_query": True, "drop_parameters": ["utm_*"]}
    spec = {"capacity": 1000, "false_positive_rate": 0.01, "key_profile": profile}
    created = json.loads(grpcurl.filters("CreateFilter", name="urls", spec=spec))["filter"]
    shown = {"name": "url-v1", "sortQuery": True, "dropParameters": ["utm_*"]}
    assert created["spec"]["keyProfile"] == shown
    key = "HTTP://Example.com:80/a/../?b=2&utm_source=x&a=1#top"
    before = json.loads(grpcurl.filters("Explain", filter="urls", key=key))
    assert before["canonicalKey"] == "http://example.com/?a=1&b=2"
    assert re.fullmatch("[0-9a-f]{32}", before["hash"])
    # What is 0 or false is shown too.
    assert (before["shard"], before["seen"]) == (0, False)
    assert {bit["isSet"] for bit in before["bits"]} == {False}
    assert {int(bit["index"]) // 512 for bit in before["bits"]} == {before["block"]}
    other = "http://example.com?a=%31&b=2"
    assert '"seen": false' in grpcurl.dedup("QueryAndAdd", filter="urls", key=other)
    after = json.loads(grpcurl.filters("Explain", filter="urls", key=key))
    bits = [bit | {"isSet": True} for bit in before["bits"]]
    assert after == before | {"bits": bits, "seen": True}


def test_errors_say_what_is_wrong(grpcurl: Grpcurl) -> None:
    unknown = grpcurl.dedup("Query", filter="defualt", key="a", code=NOT_FOUND)
    assert "Code: NotFound" in unknown
    assert "defualt" in unknown
    empty = grpcurl.dedup("QueryAndAdd", key="", code=INVALID_ARGUMENT)
    assert "Code: InvalidArgument" in empty
    assert "key" in empty


def test_health(grpcurl: Grpcurl) -> None:
    for service in ("", "seenset.v1.DedupService", "seenset.v1.FilterService"):
        answer = grpcurl("grpc.health.v1.Health/Check", data=json.dumps({"service": service}))
        assert json.loads(answer) == {"status": "SERVING"}
    other = json.dumps({"service": "seenset.v1.Other"})
    assert "Code: NotFound" in grpcurl("grpc.health.v1.Health/Check", data=other, code=NOT_FOUND)
