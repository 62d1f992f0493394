"""What a tool says or leaves out, by release and by system: the rest is kept, and what is not said is not measured."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.support import collectives_documents, tf_documents
from tests.support import gpu_tools_documents as made
from tests.support.rdma_documents import HARDWARE, WRITE, _case, end, said
from tests.support.rdma_documents import doc as rdma_doc
from tests.support.tool_documents import BANDWIDTH, DATA, TRAINING_PARAMS, doc, training, values
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.collectives.nccl_tests import table
from validation.measures.fabric import path_mtu_probe
from validation.measures.gpu.gpu_tools_probe import TESTS
from validation.measures.gpu.tools import GpuToolsFacts
from validation.measures.tcp import tcp_bandwidth_probe

IPERF3 = (DATA / "iperf3/3.17-1stream.json").read_text()


def rates(text: str) -> list[float]:
    return values(parse("tcp-bandwidth", doc("tcp-bandwidth", text), BANDWIDTH)[0], "tcp_bandwidth_gbps")


def without(value: Any, key: str) -> Any:
    """The same without that key, wherever it is."""
    if isinstance(value, dict):
        return {name: without(one, key) for name, one in value.items() if name != key}
    return [without(one, key) for one in value] if isinstance(value, list) else value


def events(report: dict[str, Any]) -> str:
    """The same as --json-stream prints it."""
    rows = [("start", report["start"]), *(("interval", one) for one in report["intervals"])]
    rows += [("server_output_json", report["server_output_json"]), ("end", report["end"])]
    return "".join(json.dumps({"event": name, "data": data}) + "\n" for name, data in rows)


@pytest.mark.parametrize(
    "text",
    [
        IPERF3 + IPERF3,
        IPERF3.strip() + IPERF3.strip(),
        f"warning: Report format (-f) flag ignored with JSON output (-J)\n{IPERF3}",
        f"{IPERF3}\niperf Done.\n",
        json.dumps(json.loads(IPERF3)),
        events(json.loads(IPERF3)),
    ],
    ids=["twice", "twice in one line", "a remark before", "a remark after", "in one line", "event by event"],
)
def test_iperf3s_report_is_read_in_every_form(text: str) -> None:
    assert rates(text) == rates(IPERF3)
    asked = tcp_bandwidth_probe.Asked("127.0.0.1", "127.0.0.1", 5299, 3, 1, 0.25)
    assert tcp_bandwidth_probe.wrong(asked, text) is None


def test_two_reports_that_differ_are_none() -> None:
    other = (DATA / "iperf3/3.12-1stream.json").read_text()
    for text in (IPERF3 + other, IPERF3.strip() + other, events(json.loads(IPERF3)) * 2):
        with pytest.raises(ParseError, match=r"different reports|is in it twice"):
            rates(text)


LEFT_OUT = (
    "retransmits", "max_snd_cwnd", "rtt", "pmtu", "sender_tcp_congestion", "cpu_utilization_percent", "sndbuf_actual",
    "target_bitrate", "fq_rate", "tos", "system_info", "streams",
)  # fmt: skip


@pytest.mark.parametrize("key", LEFT_OUT)
def test_what_iperf3_leaves_out_costs_nothing_else(key: str) -> None:
    report = without(json.loads(IPERF3), key)
    samples, _ = parse("tcp-bandwidth", doc("tcp-bandwidth", json.dumps(report)), BANDWIDTH)
    assert values(samples, "tcp_bandwidth_gbps") == rates(IPERF3)
    assert len(values(samples, "retransmits")) == (key != "retransmits")


def test_a_sender_without_a_sum_costs_its_retransmits_alone() -> None:
    report = json.loads(IPERF3)
    del report["end"]["sum_sent"]
    samples, _ = parse("tcp-bandwidth", doc("tcp-bandwidth", json.dumps(report)), BANDWIDTH)
    assert values(samples, "tcp_bandwidth_gbps") == rates(IPERF3)
    assert values(samples, "retransmits") == []


def test_both_directions_at_once_are_another_measurement() -> None:
    report = json.loads(IPERF3)
    report["start"]["test_start"]["bidir"] = report["server_output_json"]["start"]["test_start"]["bidir"] = 1
    with pytest.raises(ParseError, match="both directions at once"):
        rates(json.dumps(report))


def test_retransmits_are_those_of_the_sum_alone() -> None:
    report = json.loads(IPERF3)
    del report["end"]["sum_sent"]["retransmits"]
    samples, _ = parse("tcp-bandwidth", doc("tcp-bandwidth", json.dumps(report)), BANDWIDTH)
    assert (values(samples, "retransmits"), values(samples, "tcp_bandwidth_gbps")) == ([], rates(IPERF3))


OLD = json.loads((DATA / "foreign/path-mtu-ipv6.json").read_text())


def test_the_path_mtu_over_ipv6_has_its_header() -> None:
    samples, facts = parse("path-mtu", OLD, {"mtu": 1500})
    assert ([s.value for s in samples], facts["path_mtu_bytes"]) == ([1500.0], 1500)
    wrong = {**OLD, "facts": {**OLD["facts"], "path_mtu_bytes": 1490}}
    with pytest.raises(ParseError, match="reported by the probe"):
        parse("path-mtu", wrong, {"mtu": 1500})
    with pytest.raises(ParseError, match="4000 bytes was not tried"):
        parse("path-mtu", OLD, {"mtu": 4000})


def test_an_answer_that_came_twice_is_one() -> None:
    text = (DATA / "ping/20221126-mtu9000.out").read_text()
    reply = re.search(r"^9008 bytes from .*$|^8980 bytes from .*$", text, re.MULTILINE)
    assert reply is not None
    twice = text.replace(reply[0], f"{reply[0]}\n{reply[0]} (DUP!)", 1)
    samples, _ = parse("path-mtu", doc("path-mtu", twice, {"path_mtu_bytes": 9000}))
    assert [one.value for one in samples] == [9000]


@pytest.mark.parametrize(("address", "size"), [("10.0.0.2", 1472), ("fd00:b::2", 1452), ("fe80::1%eth0", 1452)])
def test_ping_is_asked_for_packets_of_the_size_that_is_looked_for(
    address: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def ran(command: list[str], *_: Any) -> path_mtu_probe.Ran:
        asked.append(command)
        return path_mtu_probe.Ran(
            command, 1, "", f"ping: local error: message too long, mtu{': ' if size < 1472 else '='}1500"
        )

    monkeypatch.setattr(path_mtu_probe, "run_tool", ran)
    pinger = path_mtu_probe._Pinger(address, address)
    pinger.run(1500)
    assert asked[0][asked[0].index("-s") + 1] == str(size)
    assert (pinger.local_mtu, pinger.passes(1501)) == (1500, False)


def nvbandwidth(text: str) -> Any:
    """What is read of what nvbandwidth printed."""
    facts = parse("gpu-tools", made.document(nvbandwidth=text))[1]  # type: ignore[arg-type]
    assert isinstance(facts, GpuToolsFacts)
    return facts.tools[0]


REPORT: dict[str, Any] = {
    "CUDA Runtime Version": 13000,
    "Driver Version": "580.173.02",
    "GPU Device list": ["0: NVIDIA GB300 (00000008:06:00): (node-a)", "1: NVIDIA GB300 (00000009:06:00): (node-a)"],
    "git_version": "",
    "version": "v0.8",
    "testcases": [
        {"name": TESTS[0], "status": "Passed", "bandwidth_matrix": [["370.12", "1.1e+02"]], "sum": 480.12},
        {"name": TESTS[1], "status": "Passed", "bandwidth_matrix": [["300.5", "301"]], "sum": 601.5},
        {"name": TESTS[2], "status": "Passed", "bandwidth_matrix": [["N/A", "742.3"], ["741.9", "N/A"]]},
        {"name": TESTS[3], "status": "Passed", "bandwidth_matrix": [["3210.4", "3211.2"]], "sum": 6421.6},
    ],
}


def printed(**changes: Any) -> str:
    return json.dumps({"nvbandwidth": {**REPORT, **changes}}, indent=1)


@pytest.mark.parametrize(
    ("changes", "version"),
    [
        ({}, "v0.8"),
        ({"git_version": "v0.8-3-g12ab"}, "v0.8"),
        ({"version": "", "git_version": "v0.7"}, "v0.7"),
        ({"version": None, "nvbandwidth Version": "v0.6"}, "v0.6"),
        ({"version": None, "git_version": None}, ""),
    ],
)
def test_nvbandwidths_release_and_all_its_figures(changes: dict[str, Any], version: str) -> None:
    for text in (printed(**changes), "WARNING: something\n" + printed(**changes), printed(**changes) * 2):
        tool = nvbandwidth(text)
        assert (tool.version, tool.trouble, tool.gaps) == (version, "", ())
        assert tool.addresses == ("0008:06:00.0", "0009:06:00.0")
        assert [cell.gb_s for cell in tool.cells] == [370.12, 110.0, 300.5, 301.0, 742.3, 741.9, 6420.8, 6422.4]


def test_a_test_of_nvbandwidth_without_its_matrix_costs_that_test() -> None:
    cases = [dict(one) for one in REPORT["testcases"]]
    del cases[0]["bandwidth_matrix"], cases[1]["status"]
    tool = nvbandwidth(printed(testcases=cases))
    assert tool.gaps == (f"{TESTS[0]}: no matrix in its report", f"{TESTS[1]}: without a status")
    assert {cell.what for cell in tool.cells} == {"peer", "local"}
    dotted = [name.replace(":00)", ":00.0)") for name in REPORT["GPU Device list"]]
    assert nvbandwidth(printed(**{"GPU Device list": dotted})).addresses == ("0008:06:00.0", "0009:06:00.0")
    assert nvbandwidth(printed(**{"GPU Device list": None})).addresses == ()


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        (r"$", " "),  # blanks at the end of every line
        (r"\t+", "        "),  # columns by blanks
        (r"^( rdma_cm QPs)", r" Use ROCm memory : OFF\n Numa node       : 0\n\1"),
        (r"^( ibv_wr\* API +: \S+)$", r"\1\t\tUsing DDP      : OFF"),
        (r"\A", "Conflicting CPU frequency values detected: 800.0 != 2900.0. CPU Freq is not max.\n"),
    ],
)
def test_perftests_head_may_be_laid_out_otherwise(pattern: str, words: str) -> None:
    kind, text, facts, params = _case("4.5-write_bw")
    other = re.sub(pattern, words, text, flags=re.MULTILINE)
    assert other != text
    assert parse(kind, rdma_doc(kind, other, facts), params)[0] == parse(kind, rdma_doc(kind, text, facts), params)[0]


def test_a_figure_that_perftests_json_leaves_out_contradicts_nothing() -> None:
    report = json.loads(said("constructed-24.07-write_bw.json"))
    base = {**HARDWARE, "peer": end(14, **HARDWARE)}
    params = {**WRITE, "size_bytes": 8388608, "iterations": 0, "qps": 4, "seconds": 5}

    def read(document: Any) -> Any:
        facts = {**base, "json": document if isinstance(document, str) else json.dumps(document)}
        samples, found = parse(
            "rdma-bandwidth", rdma_doc("rdma-bandwidth", said("constructed-24.07-write_bw.out"), facts), params
        )
        return samples, found["report"]

    whole, stands_in = read(report)
    assert stands_in == "json"
    for key in report["results"]:
        less = {one: value for one, value in report["results"].items() if one != key}
        assert read({**report, "results": less})[0] == whole
    for odd in ({**report, "results": {}}, {**report, "results": None}, {"results": []}, [], "", "null"):
        assert read(odd) == (whole, "text")


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("# nccl-tests version 2.20.0 (b4d5bee) nccl-headers=22707 nccl-library=22707", "22707"),
        ("# nccl-tests version 2.16.4 nccl-headers=22703 nccl-library=22705", "22705"),
        ("", ""),
    ],
)
def test_the_line_of_nccls_release_may_be_there(line: str, library: str) -> None:
    text = collectives_documents.table()
    first = text.splitlines()[0]
    found = table(text.replace(first, line), "all_reduce")
    assert (found.nccl, len(found.rows)) == (library, len(table(text, "all_reduce").rows))


TF = tf_documents.printed(tf_documents.PARAMS, 900.0)


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"^Mode:.*$", "Mode:        BenchmarkMode.TRAIN"),
        (r"^TensorFlow:.*\n", ""),
        (r"^Dataset:.*\n", ""),
        (r"^Variables:.*\n", ""),
    ],
)
def test_what_tf_cnn_benchmarks_says_in_another_way_costs_nothing(pattern: str, line: str) -> None:
    other = re.sub(pattern, line, TF, flags=re.MULTILINE)
    assert other != TF
    whole, told = (
        parse("tf-cnn-benchmarks", doc("tf-cnn-benchmarks", text), tf_documents.PARAMS)[0] for text in (TF, other)
    )
    assert told == whole


def test_a_mode_that_is_no_training_and_devices_that_are_not_told_are_refused() -> None:
    gpus = {**tf_documents.PARAMS, "device": "gpu"}
    silent = re.sub(r"^Devices:.*\n", "", TF, flags=re.MULTILINE)
    with pytest.raises(ParseError, match="and not on GPUs"):
        parse("tf-cnn-benchmarks", doc("tf-cnn-benchmarks", silent), gpus)
    forward = TF.replace("Mode:        training", "Mode:        forward-only")
    with pytest.raises(ParseError, match="the mode is forward-only"):
        parse("tf-cnn-benchmarks", doc("tf-cnn-benchmarks", forward), tf_documents.PARAMS)


DCGM = json.loads((DATA / "dcgm/constructed-4-fail.json").read_text())


def dcgm(text: str) -> Any:
    facts = {"level": 2, "returncode": 226, "said": ""}
    return parse("dcgm-diag", doc("dcgm-diag", text, facts, tool="DCGM"), {})[1]


def test_dcgms_report_is_read_beside_remarks_and_twice() -> None:
    report = json.dumps(DCGM)
    whole = dcgm(report)
    for text in (f"WARNING: {{a remark}}\n{report}", f"{report}\nbye {{}}\n", f"{report}\n{report}\n"):
        assert dcgm(text) == whole


def test_a_line_of_json_that_is_a_librarys_is_no_report_of_a_training() -> None:
    line = '{"level": "warning", "message": "NVIDIA driver is newer than this image"}\n'
    whole, _ = parse("training-short", doc("training-short", training()), TRAINING_PARAMS)
    told, _ = parse("training-short", doc("training-short", line + training() + line), TRAINING_PARAMS)
    assert told == whole
    with pytest.raises(ParseError, match="2 reports from rank 0"):
        parse("training-short", doc("training-short", training() + training()), TRAINING_PARAMS)


@pytest.mark.parametrize("kind", ["gpu-compute"])
def test_remarks_beside_torchs_report_cost_nothing(kind: str) -> None:
    recorded = json.loads((DATA / f"kinds/{kind}.json").read_text())
    document, params = recorded["document"], recorded["params"]
    whole, _ = parse(kind, document, params)
    remark = "UserWarning: CUDA initialization: {a remark}\n"
    told, _ = parse(kind, {**document, "stdout": f"{remark}{document['stdout']}\n{remark}"}, params)
    assert told == whole
