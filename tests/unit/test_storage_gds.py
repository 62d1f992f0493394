"""GPUDirect Storage by gdsio: constructed answers in the form of NVIDIA's guide. No hardware was at hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import criterion, plan_of, result, verdict_of
from tests.support.storage_documents import alone, site
from validation.kinds import parse
from validation.kinds.parsing import ParseError
from validation.measures.storage.gds import rows
from validation.model import Bom, Judgement, Measurement, Storage, Topology
from validation.probes import storage_gds

pytestmark = pytest.mark.computes
SCRATCH = Storage(name="scratch", path="/scratch")
KIB, SECONDS = 52_428_800, 5.0  # 10 GiB a second


def line(name: str, threads: int = 8, how: str = "GPUD", kib: int = KIB, seconds: float = SECONDS, **more: Any) -> str:
    rate = more.get("rate", kib / (1 << 20) / seconds)
    return (
        f"IoType: {name.upper()} XferType: {how} Threads: {threads} DataSetSize: {kib}/4194304(KiB) "
        f"IOSize: 1024(KiB) Throughput: {rate:.6f} GiB/sec, Avg_Latency: 780.250000 usecs ops: {kib >> 10} "
        f"total_time {seconds:.6f} secs\n"
    )


def run(name: str, nvfs: int | None = 51_200, **changes: Any) -> dict[str, Any]:
    return {"error": "", "stdout": line(name, **changes), "nvfs": nvfs, "command": ["gdsio"]}


def shown(**changes: Any) -> dict[str, Any]:
    return {"error": "", "tool": "/usr/local/cuda/gds/tools/gdsio",
            "ops": {name: run(name, **changes) for name in ("write", "read")}}  # fmt: skip


def site_of(storage: Storage, **bom: Any) -> Topology:
    return site(storage, names=("gpu1",), bom=Bom(gpu_count=8, gpu_model="H100", **bom))


def planned(topology: Topology) -> Measurement:
    (m,) = (m for m in plan_of(topology, ("storage",)).measurements if m.kind == "storage-alone")
    return m


def judged(storage: Storage, gds: dict[str, Any], id_: str = "st.gdsread") -> Judgement:
    topology = site_of(storage)
    plan = plan_of(topology, ("storage",))
    m = planned(topology)
    samples, facts = parse(m.kind, alone(m, gds=gds), m.params)
    return criterion(verdict_of(topology, plan, [result(m, samples, facts=facts)]), id_).judgements[0]


def test_it_is_recorded_and_against_an_order_or_the_link_judged() -> None:
    one = judged(SCRATCH, shown())
    assert (one.verdict, one.reason_code) == ("not-applicable", "reported")
    assert one.text == (
        "10.74 GB/s to and from GPU 0 without a copy in the host, 8 threads, 0.78 ms on average; "
        "nvidia-fs counted 51200 requests"
    )
    for update, verdict in (
        ({"gds_read_gb_s": 10.0}, "pass"),
        ({"gds_read_gb_s": 12.0}, "fail"),
        ({"link_gbps": 100.0}, "pass"),
        ({"link_gbps": 400.0}, "fail"),
    ):
        assert judged(SCRATCH.model_copy(update=update), shown()).verdict == verdict, update
    assert "counts none" in judged(SCRATCH, shown(nvfs=None)).text
    assert judged(SCRATCH.model_copy(update={"gds_write_gb_s": 12.0}), shown(), "st.gdswrite").verdict == "fail"


def test_why_there_is_no_figure_is_in_the_report() -> None:
    one = judged(SCRATCH, {"error": "there is no gdsio on this node"})
    assert (one.verdict, one.reason) == ("not-measured", "gpu1: there is no gdsio on this node")
    broken = shown()
    broken["ops"]["read"]["error"] = "gdsio, without its fallback, ended with 1: cuFileHandleRegister: 5011"
    assert judged(SCRATCH, broken).reason.startswith("gpu1: gdsio, without its fallback, ended with 1")
    assert judged(SCRATCH, broken, "st.gdswrite").verdict == "not-applicable", "the write was measured"


def test_nodes_without_gpus_are_not_asked() -> None:
    assert planned(site_of(SCRATCH)).params["gds"] is True
    bare = site(SCRATCH, names=("gpu1",))
    assert "gds" not in planned(bare).params
    assert not {"st.gdsread", "st.gdswrite"} & set(planned(bare).criteria)
    assert any("no node with storage has a GPU" in left.why for left in plan_of(bare, ("storage",)).left_out)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"how": "CPU_GPU"}, "it was WRITE by CPU_GPU, asked was write by GPUD"),
        ({"rate": 20.0}, "are not 20 GiB a second"),
        ({"threads": 4}, "4 threads, planned were 8"),
        ({"kib": 0, "rate": 0.0}, "0 bytes in 5 s"),
        ({"seconds": 500.0}, "bytes in 500 s"),
    ],
)
def test_a_line_that_contradicts_itself_is_no_result(change: dict[str, Any], words: str) -> None:
    with pytest.raises(ParseError, match=words):
        rows(shown(**change), {"streams": 8, "seconds": 5})
    with pytest.raises(ParseError, match="has no result, or several"):
        rows({**shown(), "ops": {"write": {**run("write"), "stdout": line("write") * 2}}}, {})


# --- the probe, with a program in gdsio's place -----------------------------------------------------------------------


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A node with a GPU, nvidia-fs and a gdsio that prints a result and counts; as files."""
    (tmp_path / "gpus/0000:18:00.0").mkdir(parents=True)
    (tmp_path / "cuda-12.8/gds/tools").mkdir(parents=True)
    (tmp_path / "stats").write_text("GDS Version: 1.13\nReads\t: n=7 ok=7 err=0\nWrites\t: n=3 ok=3 err=0\n")
    (tmp_path / "cufile.json").write_text(
        '{\n // site\n "properties": {"allow_compat_mode": true, /* x */ "u": "http://a"}}\n'
    )
    program = tmp_path / "cuda-12.8/gds/tools/gdsio"
    program.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >>{tmp_path}/asked; cat "$CUFILE_ENV_PATH_JSON" >{tmp_path}/used\n'
        'case "$*" in *"-I 1"*) way=WRITE;; *) way=READ;; esac\n'
        f"printf 'Reads : n=107\\nWrites : n=53\\n' >{tmp_path}/stats\n"
        f'echo "{line("X").strip().replace("X ", "$way ", 1)}"\n'
    )
    program.chmod(0o755)
    for name in ("GPUS", "STATS", "SETTINGS", "CUDA"):
        monkeypatch.setattr(
            storage_gds,
            name,
            tmp_path / {"GPUS": "gpus", "STATS": "stats", "SETTINGS": "cufile.json", "CUDA": ""}[name],
        )
    monkeypatch.setattr(storage_gds.shutil, "which", lambda name: None)
    monkeypatch.delenv("CUFILE_ENV_PATH_JSON", raising=False)
    return tmp_path


def test_gdsio_runs_without_its_fallback_and_with_the_rest_of_the_sites_settings(node: Path) -> None:
    (node / "own").mkdir()
    found = storage_gds.measure(node / "own", 8, 512 << 20, 5)
    assert found["error"] == ""
    assert {name: one["error"] for name, one in found["ops"].items()} == {"write": "", "read": ""}
    assert found["ops"]["write"]["nvfs"] == 50
    made, why = rows(found, {"streams": 8, "seconds": 5})
    assert ([one["phase"] for one in made], why) == (["write", "read"], "")
    used = json.loads((node / "used").read_text())["properties"]
    assert used == {"allow_compat_mode": False, "force_compat_mode": False, "u": "http://a"}
    first = (node / "asked").read_text().splitlines()[0]
    assert first == f"-D {node}/own/gds -d 0 -w 8 -s 512M -i 1M -x 0 -I 1 -T 5"


def test_what_is_missing_is_named(node: Path) -> None:
    (node / "own").mkdir()
    (node / "gpus/0000:18:00.0").rmdir()
    assert storage_gds.measure(node / "own", 8, 1 << 30, 5)["error"] == "the NVIDIA driver shows no GPU here"
    (node / "gpus/0").mkdir()
    program = node / "cuda-12.8/gds/tools/gdsio"
    program.write_text("#!/bin/sh\necho 'file register error: GPUDirect Storage not supported' >&2\nexit 1\n")
    (node / "stats").unlink()
    found = storage_gds.measure(node / "own", 8, 1 << 30, 5)
    assert found["ops"]["write"]["error"] == (
        "gdsio, without its fallback, ended with 1: file register error: GPUDirect Storage not supported; "
        "nvidia-fs is not loaded"
    )
    assert "read" not in found["ops"]
    program.unlink()
    assert storage_gds.measure(node / "own", 8, 1 << 30, 5)["error"].startswith("there is no gdsio on this node")
