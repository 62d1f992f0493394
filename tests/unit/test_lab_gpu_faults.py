"""Faults of a lab's emulated GPUs: on GPU servers alone, of the last GPU alone, and in what `lab up` writes again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from toolkit.errors import LabError
from toolkit.lab import devices, faults
from toolkit.lab.gpufaults import GPU_FAULTS
from toolkit.lab.sh import run
from toolkit.lab.spec import LabSpec, make_spec


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LabSpec:
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    return make_spec("x", 3, 4, 1)


def gpus(text: str) -> list[dict[str, object]]:
    return list(json.loads(text)["gpus"])


@pytest.mark.parametrize("kind", GPU_FAULTS)
def test_a_fault_is_the_last_gpus(spec: LabSpec, kind: str) -> None:
    healthy = gpus(devices.description(spec, spec.node("gpu1"), None))
    faulty = gpus(devices.description(spec, spec.node("gpu1"), kind))
    assert faulty[:3] == healthy[:3]
    assert faulty[3:] == ([] if GPU_FAULTS[kind].missing else [healthy[3] | GPU_FAULTS[kind].says])
    assert faulty != healthy


@pytest.mark.parametrize("kind", [*GPU_FAULTS, None])
def test_the_script_puts_the_description_in_place(spec: LabSpec, tmp_path: Path, kind: str | None) -> None:
    node, place = spec.node("gpu2"), tmp_path / devices.DESCRIPTION
    script = faults.gpu_script(spec, node, kind).replace(f"/{devices.DESCRIPTION}", str(place))
    done = run(["sh", "-s"], stdin=script, check=False)
    assert (done.returncode, done.stderr) == (1, "no emulated GPUs on this node\n")
    place.parent.mkdir(parents=True)
    place.write_text("{}")
    run(["sh", "-s"], stdin=script)
    assert place.read_text() == devices.description(spec, node, kind)
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_nodes_without_gpus_are_refused(spec: LabSpec) -> None:
    for kind in GPU_FAULTS:
        faults.check(spec, spec.node("gpu1"), kind)
        with pytest.raises(LabError, match=re.escape(f"head has no GPUs, and {kind} is a fault of one")):
            faults.check(spec, spec.node("head"), kind)


def test_a_planted_fault_stays_when_the_lab_is_brought_up_again(spec: LabSpec, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    made = devices.Emulation(tmp_path / "lib", tmp_path / "engine", "", devices.EngineInfo("", "", "", "", ""))
    spec.dir.mkdir(parents=True)
    (spec.dir / "faults.json").write_text('{"gpu2": "pcie-x8", "gpu1": "slow-link"}')
    widths = {
        name: [
            g["pcie_width"]
            for g in gpus(devices.node_files(spec, spec.node(name), made)[devices.DESCRIPTION][0].decode())
        ]
        for name in ("gpu1", "gpu2")
    }
    assert widths == {"gpu1": [16] * 4, "gpu2": [16, 16, 16, 8]}
