"""The trace of a few training steps: recorded by whatever profiler there is, kept in one line, and summed up."""

from __future__ import annotations

import base64
import json
import sys
import types
import zlib
from pathlib import Path
from typing import Any

import pytest

from validation.kinds.parsing import ParseError
from validation.measures.training.trace import summary, trace_of
from validation.probes import train_trace
from validation.probes.train_trace import MARK, MOST_EVENTS, line_of, record, shares

NAMES = ["volta_fp16_s884cudnn_conv", "ncclKernel_AllReduce_RING_LL_Sum_half", "Memcpy HtoD"]


def made(**changes: Any) -> dict[str, Any]:
    """Two steps of 1000 us on one GPU: 400 us of products, a gap of 100 us, 300 us of NCCL, 50 us of a copy beside."""
    events = [[0, 0, 0.0, 400.0, 0], [2, 1, 350.0, 50.0, 1], [1, 0, 500.0, 300.0, 2]]
    steps = [{"wall_us": 1000.0, "events": events}, {"wall_us": 1000.0, "events": events}]
    return {"by": "kernels", "names": NAMES, "steps": steps, "of_steps": 2, "left_out": "", **changes}


def line(**changes: Any) -> str:
    return f"a log\n{line_of(made(**changes))}\n{{}}\n"


def test_kernels_are_summed_up_by_name_and_the_all_reduce_has_its_share() -> None:
    found = summary(line())
    assert found is not None
    assert found.allreduce_ratio == pytest.approx(300 / 700, abs=1e-5)
    assert [(top.name, top.us, top.count, round(top.share, 4)) for top in found.top] == [
        (NAMES[0], 800.0, 2, 0.5714),
        (NAMES[1], 600.0, 2, 0.4286),
    ]
    assert (found.steps, found.of_steps, found.events, found.wall_us) == (2, 2, 6, 2000.0)


def test_gaps_are_the_times_in_which_nothing_ran() -> None:
    found = summary(line())
    assert found is not None
    assert found.busy_ratio == 0.7
    assert [(gap.us, gap.before, gap.after) for gap in found.gaps] == [(100.0, NAMES[0], NAMES[1])] * 2


def test_operators_have_their_own_time_without_that_of_those_they_call() -> None:
    events = [[0, 3, 0.0, 900.0, 0], [1, 3, 100.0, 500.0, 0], [2, 3, 200.0, 100.0, 0], [1, 3, 0.0, 50.0, 1]]
    step = {"wall_us": 1000.0, "events": events}
    found = summary(line(by="operators", names=["outer", "middle", "inner"], steps=[step], of_steps=1))
    assert found is not None
    assert {top.name: (top.us, top.count) for top in found.top} == {
        "outer": (400.0, 1),
        "middle": (450.0, 2),
        "inner": (100.0, 1),
    }
    assert (found.busy_ratio, found.allreduce_ratio, found.gaps) == (None, None, ())


def test_an_output_without_a_trace_has_none() -> None:
    assert summary("a log\n{}\n") is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (line() + line(), "2 of them"),
        (line().replace(MARK, MARK + "!"), "cannot be read"),
        (MARK + line_of(made())[len(MARK) : -8], "cannot be read|is cut off"),
        (MARK + base64.b64encode(zlib.compress(b"[1]")).decode(), "is no object"),
        (MARK + base64.b64encode(zlib.compress(b"{")).decode(), "cannot be read"),
        (MARK + base64.b64encode(zlib.compress(b" " * (65 << 20))).decode(), "longer than"),
        (line(by="guesses"), "is of guesses"),
        (line(names=NAMES[:1]), "no name or sort"),
        (line(steps=[{"wall_us": 1000.0, "events": [[0, 9, 0, 1, 0]]}]), "no name or sort"),
        (line(steps=[{"wall_us": 1000.0, "events": [[0, 0, 0, -1, 0]]}]), "an event of -1 us"),
        (line(steps=[{"wall_us": 1000.0, "events": [[0, 0, 0, 5e6, 0]]}]), "events of 5e.06 us in a step of 1000 us"),
        (line(steps=[{"wall_us": float("nan"), "events": []}]), "a step's time"),
    ],
)
def test_a_damaged_trace_is_refused(text: str, words: str) -> None:
    with pytest.raises(ParseError, match=words):
        summary(text)


def chrome(*rows: dict[str, Any]) -> str:
    return json.dumps({"traceEvents": [{"ph": "M", "name": "process_name"}, *rows]})


KERNEL = {"ph": "X", "cat": "kernel", "name": "nccl", "pid": 0, "tid": 7, "ts": 5000.5, "dur": 30.25}
PRODUCT = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 3, "ts": 4000.5, "dur": 90.75}
CALL = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 4000, "dur": 3}


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch as far as a profiler goes: it writes `text`, or fails as `fails` says."""
    module = types.SimpleNamespace(text=chrome(KERNEL, PRODUCT, CALL), fails="", asked=[], kineto=True)

    class Profile:
        def __init__(self, activities: list[str]) -> None:
            if module.fails == "made":
                raise RuntimeError("no CUPTI\nand more")
            module.asked.append(activities)

        def start(self) -> None:
            if module.fails == "started":
                raise AssertionError

        def stop(self) -> None:
            if module.fails == "stopped":
                raise RuntimeError("another profiler is active")

        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text(module.text)

    class Legacy:
        def __init__(self, use_kineto: bool) -> None:
            assert not use_kineto

        def __enter__(self) -> None:
            module.asked.append(["legacy"])

        def __exit__(self, *_: object) -> None:
            pass

        def export_chrome_trace(self, path: str) -> None:
            Path(path).write_text(module.text)

    module.autograd = types.SimpleNamespace(
        kineto_available=lambda: module.kineto, profiler=types.SimpleNamespace(profile=Legacy)
    )
    profiler = types.ModuleType("torch.profiler")
    profiler.profile = Profile  # type: ignore[attr-defined]
    profiler.ProfilerActivity = types.SimpleNamespace(CPU="cpu", CUDA="cuda")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    monkeypatch.setitem(sys.modules, "torch.profiler", profiler)
    return module


def test_what_ran_on_the_gpu_is_kept_in_its_order(torch: Any) -> None:
    steps: list[int] = []
    found = record(torch, lambda: steps.append(1), 2, cuda=True, recording=True)
    assert found is not None
    assert (len(steps), torch.asked, found["names"]) == (2, [["cuda"]] * 2, ["gemm", "nccl"])
    assert found["steps"][0]["events"] == [[0, 0, 0.0, 90.75, 0], [1, 0, 1000.0, 30.25, 1]]
    assert shares(found) == [0.25, 0.25]
    assert trace_of(line_of(found)) == found


@pytest.mark.parametrize(
    ("fails", "words"),
    [
        ("made", "torch's profiler: no CUPTI"),
        ("started", "torch's profiler: AssertionError"),
        ("stopped", "torch's profiler: another profiler is active"),
    ],
)
def test_a_profiler_that_fails_costs_the_trace_and_no_step(torch: Any, fails: str, words: str) -> None:
    torch.fails, steps = fails, []
    found = record(torch, lambda: steps.append(1), 3, cuda=True, recording=True)
    assert len(steps) == 3, "the other ranks are in the middle of a step"
    assert found is not None
    assert (found["steps"], found["left_out"]) == ([], words)
    told = summary(line_of(found))
    assert told is not None
    assert (told.steps, told.of_steps, told.left_out) == (0, 3, words)


@pytest.mark.parametrize("text", ["{", "[]", chrome(CALL)])
def test_a_profiler_that_writes_nothing_of_use_says_so(torch: Any, text: str) -> None:
    torch.text = text
    found = record(torch, lambda: None, 1, cuda=True, recording=True)
    assert found is not None
    assert not found["steps"]
    assert found["left_out"].startswith("torch's profiler")


def test_a_rank_that_does_not_record_does_the_steps(torch: Any) -> None:
    steps: list[int] = []
    assert record(torch, lambda: steps.append(1), 3, cuda=True, recording=False) is None
    assert (len(steps), torch.asked) == (3, [])


def test_a_torch_without_kineto_tells_its_operators(torch: Any) -> None:
    torch.kineto = False
    torch.text = json.dumps(
        [{"name": "aten::conv2d", "ph": "X", "ts": 3.5, "dur": 2.0, "tid": 1, "pid": "CPU functions", "args": {}}]
    )
    found = record(torch, lambda: None, 1, cuda=False, recording=True)
    assert found is not None
    assert torch.asked == [["legacy"]]
    assert (found["by"], found["names"], found["left_out"]) == ("operators", ["aten::conv2d"], "")


def test_a_trace_keeps_whole_steps_and_no_more_than_it_may(torch: Any) -> None:
    torch.text = chrome(*({**KERNEL, "ts": at} for at in range(MOST_EVENTS // 2)))
    found = record(torch, lambda: None, 3, cuda=True, recording=True)
    assert found is not None
    assert (len(found["steps"]), found["of_steps"]) == (2, 3)
    assert found["left_out"].startswith(f"a step has {MOST_EVENTS // 2} events")
    assert len(line_of(found)) < 400_000


def test_names_of_kernels_are_cut(torch: Any) -> None:
    torch.text = chrome({**KERNEL, "name": "x" * 5000})
    found = record(torch, lambda: None, 1, cuda=True, recording=True)
    assert found is not None
    assert len(found["names"][0]) == train_trace.NAME_LENGTH
