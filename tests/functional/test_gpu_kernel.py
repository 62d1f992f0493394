"""An empty kernel on each GPU: timed, and what goes wrong with it is that GPU's alone. On emulated devices."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import gpu_copies_documents as made
from tests.support.engine_run import MIB, ROOT, built, describe
from tests.support.gpu_copies_case import judged, planned
from tests.support.site import criterion, lab, result, verdict_of
from toolkit.engine import build, host_modules
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.gpu.copies_facts import GpuCopyFacts
from validation.measures.gpu.kinds import FULL
from validation.model import VerdictDoc
from validation.probes import gpu_kernel

pytestmark = pytest.mark.engines

LACKS = build.missing_tools() or host_modules.lacks_compiler()
compiles = pytest.mark.skipif(bool(LACKS), reason=f"no compiler here: {LACKS}")
ASKED = {"largest_bytes": MIB, "repeat": 6, "latency_count": 20, "warm_s": 0.02, "gpus": 2}


def probed(folder: Path, libraries: Path | None = None, **last: Any) -> GpuCopyFacts:
    """The facts of two GPUs, the last of which is described so."""
    devices = describe(folder)
    first, other = json.loads((folder / "gpus.json").read_text())["gpus"]
    (folder / "gpus.json").write_text(json.dumps({"gpus": [first, {**other, **last}]}))
    environment = {**os.environ, **devices, "LD_LIBRARY_PATH": str(libraries or built() / "devices")}
    command = [sys.executable, "-m", "validation.probes", "gpu-copies", json.dumps(ASKED)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
    doc = json.loads(done.stdout)
    assert doc["error"] is None, doc["error"]
    facts = parse("gpu-copies", doc, ASKED)[1]
    assert isinstance(facts, GpuCopyFacts)
    return facts


def rehearsed(facts: GpuCopyFacts) -> VerdictDoc:
    """The verdict on a lab's node with these facts."""
    rehearsal = lab(("gpu1",), emulated_gpus=2)
    plan = planned(rehearsal)
    return verdict_of(rehearsal, plan, [result(plan.measurements[0], facts=facts)])


def whole(facts: GpuCopyFacts, number: int) -> bool:
    """Whether a GPU has all its own figures."""
    mine = [c for c in (*facts.copies, *facts.waits) if {c.source, c.target} <= {None, number}]
    return not any(cell.error for cell in mine) and len(mine) > 10


def test_the_probe_has_the_code_that_emulated_gpus_have() -> None:
    assert (host_modules.KERNELS / "empty.ptx").read_text() == gpu_kernel.PTX


def test_what_the_driver_compiles_is_not_kept_in_the_users_home() -> None:
    """CUDA C++ Programming Guide, environment variables: the driver reads it when it starts."""
    code = "import os; from validation.probes.cuda import *\n"
    code += "try: Cuda('libnone.so')\nexcept CudaError: print(os.environ['CUDA_CACHE_DISABLE'])"
    bare = {key: os.environ[key] for key in os.environ if key != "CUDA_CACHE_DISABLE"}
    for given, wanted in (({}, "1"), ({"CUDA_CACHE_DISABLE": "0"}, "0")):
        done = subprocess.run([sys.executable, "-c", code], env={**bare, **given}, cwd=ROOT, capture_output=True)
        assert done.stdout.decode().strip() == wanted, done.stderr


@compiles
def test_an_empty_kernel_of_each_gpu_is_timed_and_reported(tmp_path: Path) -> None:
    facts = probed(tmp_path)
    kernels = [facts.wait_of("kernel", number, number) for number in range(2)]
    assert [(k.error, k.samples, k.started) for k in kernels if k] == [("", 20, True)] * 2
    assert facts.holes == []
    found = criterion(rehearsed(facts), "tr.calls")
    said = {str(j.subject): (j.verdict, j.reason_code) for j in found.judgements}
    subjects = [f"gpu1, {what} GPU {n}" for n in (0, 1) for what in ("synchronisation of", "an empty kernel on")]
    assert said == dict.fromkeys(subjects, ("not-applicable", "reported"))
    assert all(j.reason.startswith("reported, not judged: ") for j in found.judgements)
    assert all(j.reason.endswith(" us, emulated") for j in found.judgements)


@compiles
def test_a_kernel_that_meets_an_illegal_address_is_a_hole_of_its_gpu_alone(tmp_path: Path) -> None:
    facts = probed(tmp_path, illegal_after=15)
    assert whole(facts, 0)
    assert facts.holes[0].startswith(
        "an empty kernel on GPU 1: cuStreamQuery: CUDA_ERROR_ILLEGAL_ADDRESS (700); look at dmesg for NVRM and Xid"
    ) or facts.holes[0].startswith("an empty kernel on GPU 1: cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS (700)")
    assert all("GPU 1" in hole for hole in facts.holes)
    verdict = rehearsed(facts)
    assert (criterion(verdict, "tr.matrix").verdict, criterion(verdict, "tr.matrix").reason[:24]) == (
        "fail",
        "an empty kernel on GPU 1",
    )
    mine = {str(j.subject): j.verdict for j in criterion(verdict, "tr.calls").judgements}
    assert mine["gpu1, an empty kernel on GPU 1"] == "not-measured"
    assert mine["gpu1, an empty kernel on GPU 0"] == "not-applicable"


@compiles
def test_a_kernel_that_never_ends_is_its_gpus_and_the_others_are_measured(tmp_path: Path) -> None:
    facts = probed(tmp_path, endless_after=15)
    assert whole(facts, 0)
    (hole,) = facts.holes
    assert hole == facts.gpus[1].untaken
    assert "GPU 1 of CUDA: an empty kernel had not ended after 10 s; this ended all work of its process" in hole
    assert criterion(rehearsed(facts), "tr.matrix").verdict == "fail"


@compiles
def test_where_no_code_of_the_kernel_is_there_it_is_not_measured_and_no_hole(tmp_path: Path) -> None:
    bare = tmp_path / "lib"
    shutil.copytree(built() / "devices", bare, ignore=shutil.ignore_patterns("elastic-ai-kernels-*"))
    facts = probed(tmp_path, bare)
    assert facts.holes == []
    assert [w.started for w in facts.waits if w.what == "kernel"] == [False, False]
    found = criterion(rehearsed(facts), "tr.calls").judgements
    kernels = [j for j in found if "kernel" in str(j.subject)]
    assert [j.verdict for j in kernels] == ["not-measured"] * 2
    assert all("CUDA_ERROR_NO_BINARY_FOR_GPU (209)" in j.reason for j in kernels)


def without(what: str, count: int) -> Any:
    def spoilt(params: Any) -> Any:
        found = made.report(params)
        gone = [wait for wait in found["latencies"] if wait["what"] == what][:count]
        return {**found, "latencies": [wait for wait in found["latencies"] if wait not in gone]}

    return spoilt


def test_a_run_before_probes_had_kernels_is_read_and_half_of_them_is_refused() -> None:
    params = {**FULL, "gpus": 2}
    verdict = judged(without("kernel", 2))
    assert criterion(verdict, "tr.matrix").verdict == "pass"
    assert [str(j.subject) for j in criterion(verdict, "tr.calls").judgements] == [
        f"gpu1, synchronisation of GPU {n}" for n in (0, 1)
    ]
    for what in ("kernel", "sync"):
        with pytest.raises(ParseError, match="latencies are there"):
            parse("gpu-copies", made.document(without(what, 1)(params)), params)  # type: ignore[arg-type]
    assert [j.reason for j in criterion(judged(made.report), "tr.calls").judgements][1] == (
        "reported, not judged: 5.64 us"
    )
