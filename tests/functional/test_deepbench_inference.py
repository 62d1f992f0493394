"""DeepBench's lists for inference: the verdict on GPUs, and the CUDA graphs that their problems are recorded in."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from tests.functional.test_gpu_compute import judged
from tests.support.compute_case import Spoil
from validation.probes import deepbench, torch_compute

pytestmark = pytest.mark.engines


@pytest.mark.parametrize("which", deepbench.INFERENCE_LISTS)
def test_a_gpu_that_is_slow_in_one_list_for_inference_fails_there_alone(which: str) -> None:
    def slow(by: float) -> Spoil:
        def change(device: dict[str, Any]) -> None:
            for rows in device["lists"][which].values():
                for row in rows:
                    row[2] = [value / (1 - by) for value in row[2]]

        return change

    found = judged({5: slow(0.12)}, "co.inference", gpus=8)
    assert (found.verdict, found.reason_code, found.coverage) == ("fail", "below-floor", "8/8 devices")
    assert f"{which} " in found.reason
    assert [j.subject for j in found.judgements if j.verdict == "fail"] == ["gpu1, GPU 5"]
    assert judged({5: slow(0.08)}, "co.inference", gpus=8).verdict == "pass"
    for training in ("co.gemm", "co.conv", "co.rnn"):
        assert judged({5: slow(0.5)}, training, gpus=8).verdict == "pass"


@pytest.mark.parametrize("records", [True, False])
def test_problems_for_inference_are_recorded_once_and_their_time_is_that_of_one(records: bool) -> None:
    """Each run of the constructed device takes 1 ms, however it was begun, and the launch of one 5 ms more."""
    clock, launched, capturing = [0.0], [0], [0]

    class Graph:
        runs = 0

        def replay(self) -> None:
            clock[0] += 5.0 + self.runs

    class Recording:
        def __init__(self, graph: Graph) -> None:
            self.graph = graph

        def __enter__(self) -> None:
            if not records:
                raise RuntimeError("operation not permitted when stream is capturing\nmore")
            capturing[0] = 1

        def __exit__(self, *_: object) -> None:
            self.graph.runs, capturing[0], launched[0] = launched[0], 0, 0

    class Event:
        def __init__(self, **_: object) -> None:
            self.at = 0.0

        def record(self) -> None:
            self.at = clock[0]

        def synchronize(self) -> None:
            pass

        def elapsed_time(self, end: Event) -> float:
            return end.at - self.at

    def product(_a: object, _b: object, out: object) -> object:
        launched[0] += capturing[0]
        clock[0] += 0 if capturing[0] else 6.0
        return out

    tensor = SimpleNamespace(shape=(8, 8), dtype="fp32", all=lambda: True)
    cuda = SimpleNamespace(Event=Event, CUDAGraph=Graph, graph=Recording, empty_cache=lambda: None)
    device = torch_compute.Device.__new__(torch_compute.Device)
    device.torch = SimpleNamespace(
        cuda=cuda, mm=product, empty=lambda *_, **__: tensor, set_grad_enabled=lambda _: nullcontext(),
        isfinite=lambda _: tensor,
    )  # fmt: skip
    device.cuda, device.at = True, "cuda:0"
    device.use, device.random = (lambda _: "fp32"), (lambda *_, dtype: tensor)  # type: ignore[method-assign]
    asked = {"least_s": 0.1, "batches": 2}
    eager = torch_compute.one(device, "gemm", "8x8x8NN", "fp32", asked)
    assert eager == [17, [0.006, 0.006], True]
    found = torch_compute.one(device, "gemm_inference", "8x8x8NN", "fp32", asked)
    if records:
        assert found == [70, [0.0015, 0.0015], True]  # 5 ms of launch for ten runs of 1 ms
    else:
        assert found == ["operation not permitted when stream is capturing"]
