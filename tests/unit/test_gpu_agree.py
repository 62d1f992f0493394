"""NVIDIA's own tools beside our copies: read whole or not at all, agreement judged, and what looks like it is none.

What the tools print is constructed from their sources (tests/support/gpu_tools_documents.py); none of it was measured.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import gpu_copies_documents as copies
from tests.support import gpu_tools_documents as made
from tests.support.gpu_copies_case import topology
from tests.support.site import CRITERIA, RUN, criterion, lab, plan_of, result, verdict_of
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.gpu_tools_probe import P2P, TESTS
from validation.measures.gpu.tools import GpuToolsFacts
from validation.model import CriterionVerdict, Measurement
from validation.plan.suites import make_plan
from validation.rules.fabric import load_fabric

H2D, D2H, WRITE, LOCAL = TESTS
TEXT, JSON, SAMPLE = ((made.DATA / f"constructed-{name}").read_text() for name in (
    "nvbandwidth-0.8.txt", "nvbandwidth-0.8.json", "p2pBandwidthLatencyTest.txt"))  # fmt: skip


def facts(**of: Any) -> GpuToolsFacts:
    """What is read of a document."""
    found = parse("gpu-tools", made.document(**of))[1]  # type: ignore[arg-type]
    assert isinstance(found, GpuToolsFacts)
    return found


def judged(report: Any = copies.report, **of: Any) -> CriterionVerdict:
    """tr.agree of one node with two GPUs."""
    whole = topology(2)
    plan = plan_of(whole, ("transport",))
    mine = tuple(m for m in plan.measurements if m.kind in ("gpu-copies", "gpu-tools"))
    rounds = tuple(one for one in plan.rounds if set(one) & {m.id for m in mine})

    def one(m: Measurement) -> Any:
        said = copies.document(report(m.params)) if m.kind == "gpu-copies" else made.document(**of)
        samples, found = parse(m.kind, said, m.params)  # type: ignore[arg-type]
        return result(m, samples, facts=found)

    assert [m.kind for m in mine] == ["gpu-copies", "gpu-tools"]
    verdict = verdict_of(whole, plan.model_copy(update={"measurements": mine, "rounds": rounds}), map(one, mine))
    return criterion(verdict, "tr.agree")


def reason(of: CriterionVerdict, tool: str) -> str:
    """Why, of a tool's judgement."""
    return next(j.reason for j in of.judgements if tool in j.subject)


@pytest.mark.parametrize("text", [TEXT, JSON])
def test_both_forms_of_nvbandwidth_are_the_same_figures(text: str) -> None:
    [tool, absent] = facts(nvbandwidth=text).tools
    rates = {(c.what, c.source, c.target): c.gb_s for c in tool.cells}
    assert rates == {
        ("h2d", None, 0): 12.3, ("h2d", None, 1): 12.29, ("d2h", 0, None): 12.9, ("d2h", 1, None): 12.91,
        ("peer", 0, 1): 10.2, ("peer", 1, 0): 10.21, ("local", 0, 0): 780.4, ("local", 1, 1): 779.6,
    }  # fmt: skip
    assert all(c.access for c in tool.cells if c.what == "peer")
    assert (tool.version, tool.addresses, tool.gaps) == ("v0.8", ("0000:1a:00.0", "0000:1b:00.0"), ())
    assert absent.trouble == f"{P2P} is not installed on this node"


def test_the_sample_is_read_and_its_local_copies_are_counted_as_ours() -> None:
    tool = facts(p2p=SAMPLE).tools[1]
    rates = {(c.what, c.source, c.target, c.access): c.gb_s for c in tool.cells}
    assert rates == {
        ("local", 0, 0, False): 780, ("local", 1, 1, False): 780, ("peer", 0, 1, False): 7.5,
        ("peer", 1, 0, False): 7.5, ("peer", 0, 1, True): 10.2, ("peer", 1, 0, True): 10.2,
    }  # fmt: skip
    assert tool.addresses == ("0000:1a:00.0", "0000:1b:00.0")


def test_tools_that_agree_pass_and_the_reason_counts_what_was_compared() -> None:
    found = judged(nvbandwidth=TEXT, p2p=SAMPLE)
    assert (found.verdict, found.reason_code) == ("pass", "within-bounds"), found.reason
    assert "8 copies by both" in reason(found, "nvbandwidth")
    assert "4 copies by both" in reason(found, P2P)
    assert not found.required


def test_above_two_percent_is_a_remark_with_pair_direction_and_both_figures_and_far_above_a_fault() -> None:
    said = judged(nvbandwidth=made.nvbandwidth_text({**made.USUAL, D2H: [[12.9, 12.5]]}), p2p=SAMPLE)
    assert (said.verdict, said.reason_code) == ("pass", "remarked")
    assert "GPU 1 to H: ours 12.89, nvbandwidth 12.5 GB/s (-3.0%)" in reason(said, "nvbandwidth")
    far = judged(nvbandwidth=made.nvbandwidth_text({**made.USUAL, WRITE: [[None, 10.2], [5.0, None]]}))
    assert (far.verdict, far.reason_code) == ("fail", "above-maximum")
    assert "GPU 1 to GPU 0 by P2P: ours 10.19, nvbandwidth 5 GB/s (-50.9%)" in reason(far, "nvbandwidth")


def test_a_cell_of_n_a_is_no_figure_is_said_and_is_no_agreement() -> None:
    lacking = {**made.USUAL, H2D: [[12.3, None]], WRITE: [[None, None], [10.21, None]]}
    for text in (made.nvbandwidth_text(lacking), made.nvbandwidth_json(lacking)):
        [tool, _] = facts(nvbandwidth=text).tools
        assert not [c for c in tool.cells if (c.what, c.source, c.target) in (("h2d", None, 1), ("peer", 0, 1))]
        assert min(c.gb_s for c in tool.cells) > 10
        assert set(tool.gaps) == {f"{H2D}: no figure of GPU 1", f"{WRITE}: no figure of GPU 0 to GPU 1"}
        said = judged(nvbandwidth=text)
        assert (said.verdict, said.reason_code) == ("pass", "remarked")
        assert f"{H2D}: no figure of GPU 1" in reason(said, "nvbandwidth")
    nothing = {key: [[None, None]] for key in TESTS} | {WRITE: [[None, None], [None, None]]}
    none = judged(nvbandwidth=made.nvbandwidth_text(nothing))
    assert (none.verdict, none.reason_code) == ("not-measured", "tool-failed")
    assert "ended with 0 and measured nothing" in none.reason


def test_gpus_are_told_apart_by_their_places_and_not_by_their_numbers() -> None:
    swapped = TEXT.replace(":1a:", ":xx:").replace(":1b:", ":1a:").replace(":xx:", ":1b:")
    slow = swapped.replace("     12.30     12.29", "     12.30      9.00")
    assert "H to GPU 0: ours 12.29, nvbandwidth 9 GB/s" in reason(judged(nvbandwidth=slow), "nvbandwidth")
    bare = TEXT.replace(" (00000000:1a:00)", "").replace(" (00000000:1b:00)", "")  # 0.5 prints no places
    assert judged(nvbandwidth=bare, p2p=SAMPLE).reason_code == "within-bounds"
    other = TEXT.replace(":1b:", ":5b:")
    assert "is a GPU that our copies have not" in reason(judged(nvbandwidth=other), "nvbandwidth")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (made.nvbandwidth_text(dict.fromkeys(TESTS, "Waived")), "ended with 0 and measured nothing"),
        (made.nvbandwidth_json(dict.fromkeys(TESTS, "Waived")), "ended with 0 and measured nothing"),
        (made.nvbandwidth_json({}, error="CUDA_ERROR_NO_DEVICE"), "ended with 0 and measured nothing"),
        ("", "ended with 0 and measured nothing"),
        (made.nvbandwidth_text({H2D: [[None, None]]}), "ended with 0 and measured nothing"),
        (made.nvbandwidth_text({H2D: [[0.0, 0.0]]}), "ended with 0 and measured nothing"),
        (JSON[: len(JSON) // 2], "its JSON cannot be read"),
        (TEXT[: TEXT.index("     10.21")], "a matrix of 1 row"),
        (TEXT.replace("10.21", "  inf"), "inf GB/s is no rate"),
        (TEXT.replace("10.21", "-1.00"), "-1.00 GB/s is no rate"),
        (TEXT.replace(" 1     10.21       N/A", " 1     10.21"), "has 1 of 2 cells"),
        (TEXT.replace(" 0       N/A", " 0      99.0"), "a copy from a GPU to itself"),
    ],
)
def test_exit_0_with_nothing_measured_and_half_an_output_are_no_agreement(text: str, said: str) -> None:
    found = judged(nvbandwidth=text, p2p=SAMPLE)
    assert (found.verdict, said in reason(found, "nvbandwidth")) == ("not-measured", True), found.reason
    assert "differ" in reason(found, P2P)  # and costs the other tool nothing


def test_figures_of_a_tool_that_ended_badly_are_not_taken() -> None:
    killed = made.tool("nvbandwidth", TEXT, -9)
    found = judged(nvbandwidth=killed, p2p=made.tool(P2P, SAMPLE, 1, "CUDA error: out of memory"))
    assert {j.reason_code for j in found.judgements} == {"tool-failed"}
    assert "ended with signal 9" in reason(found, "nvbandwidth")
    assert "(CUDA error: out of memory)" in reason(found, P2P)


def test_cells_without_a_figure_are_told_and_compared_with_nothing() -> None:
    found = judged(nvbandwidth=made.nvbandwidth_text({**made.USUAL, WRITE: [[None, None], [10.2, None]]}))
    assert "7 copies by both" in reason(found, "nvbandwidth")
    assert "no figure of GPU 0 to GPU 1" in reason(found, "nvbandwidth")
    waived = judged(nvbandwidth=made.nvbandwidth_json({**made.USUAL, WRITE: "Waived"}))
    assert f"{WRITE}: Waived" in reason(waived, "nvbandwidth")


def test_a_p2p_figure_that_went_through_the_host_is_never_taken_for_p2p() -> None:
    """The sample prints it under "P2P=Enabled" all the same; ours says that there is no access."""
    tool = facts(p2p=made.p2p_text(on=7.5, access=False)).tools[1]
    assert not any(c.access for c in tool.cells)
    assert any("went through the host" in gap for gap in tool.gaps)
    ours = judged(lambda p: copies.report(p, access=False), p2p=made.p2p_text(on=7.5, access=False))
    assert "GPU 0 has no access to GPU 1" in reason(ours, P2P)
    bounced = judged(p2p=made.p2p_text(on=7.6))  # access, and no faster for it
    assert bounced.verdict == "fail"
    assert "GPU 0 to GPU 1 by P2P: ours 10.19" in reason(bounced, P2P)
    alike = judged(lambda p: copies.report(p, rate=lambda c: 7.6 if c["what"] == "peer" else copies.usual(c)),
                   p2p=made.p2p_text(on=7.6))  # fmt: skip
    assert (alike.reason_code, "no faster than through the host" in reason(alike, P2P)) == ("remarked", True)


def test_without_the_tools_it_is_not_measured_with_that_reason_and_owes_nothing() -> None:
    found = judged()
    assert (found.verdict, found.reason_code, found.required) == ("not-measured", "no-bound", False)
    assert found.reason == f"neither nvbandwidth nor {P2P} is installed on this node"
    assert [j.subject for j in judged(nvbandwidth=TEXT).judgements] == ["gpu1, nvbandwidth"]  # one of them is enough
    busy = judged(why="no libnvidia-ml.so.1: the GPU driver is not installed")
    assert "the GPU driver is not installed" in busy.reason


def test_a_report_that_contradicts_itself_is_refused() -> None:
    for tools, why in (([], ""), ([made.tool(P2P, None)], ""), ([made.tool("nvbandwidth", None)] * 2, "x")):
        document = made.document()
        document["stdout"] = json.dumps({"tools": tools, "why": why})
        with pytest.raises(ParseError):
            parse("gpu-tools", document)  # type: ignore[arg-type]


def test_it_follows_our_copies_and_is_left_out_where_it_is_to_be_quick() -> None:
    for whole in (topology(8), lab(emulated_gpus=4)):
        plan = plan_of(whole, ("transport",))
        kinds = [plan.measurement(one[0]).kind for one in plan.rounds]
        assert kinds.index("gpu-tools") > max(i for i, kind in enumerate(kinds) if kind == "gpu-copies")
    quick = make_plan(RUN, topology(8), load_fabric("tcp10"), CRITERIA, ("transport",), {"quick": 1})
    assert not [m for m in quick.measurements if m.kind == "gpu-tools"]
    assert any("tr.agree" in left.criteria for left in quick.left_out)
    long = plan_of(topology(8), ("transport",)).measurement("gpu-tools.gpu1").estimated_s
    assert long > plan_of(topology(2), ("transport",)).measurement("gpu-tools.gpu1").estimated_s > 10
