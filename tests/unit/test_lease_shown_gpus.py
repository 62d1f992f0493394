"""What shows a lease's GPUs to a program without CUDA: where it is found, and before what."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import lease_forms
from toolkit.lease import LeaseError, instance_record
from toolkit.lease.client import images, running, shown_gpus
from toolkit.lease.endpoint import gpus_text
from toolkit.lease.engines import LeasedGpu
from toolkit.lease.fields import Fields


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """An engine's folder with both."""
    program = tmp_path / "engine/client/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path / "engine"


def test_both_are_found_before_what_else_has_their_names(engine: Path) -> None:
    given = {"LD_LIBRARY_PATH": "/e/lib:/mine", "X": "1"}
    assert shown_gpus.environment(engine, given, {"PATH": "/usr/bin", "LD_LIBRARY_PATH": "/mine"}) == {
        "PATH": f"{engine}/client/bin:/usr/bin",
        "LD_LIBRARY_PATH": f"{engine}/client/lib:/e/lib:/mine",
        "X": "1",
    }
    assert shown_gpus.environment(engine, {}, {}) == {
        "PATH": f"{engine}/client/bin",
        "LD_LIBRARY_PATH": f"{engine}/client/lib",
    }


def test_an_archive_without_them_changes_nothing(tmp_path: Path) -> None:
    """Lupine brings a library of NVML of its own."""
    assert shown_gpus.environment(tmp_path, {"LD_LIBRARY_PATH": "/e/lib"}, {"PATH": "/usr/bin"}) == {
        "LD_LIBRARY_PATH": "/e/lib"
    }


def test_nvidia_smi_is_a_program_where_only_the_engine_has_it(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert running.find_program(["nvidia-smi", "-L"], engine) == f"{engine}/client/bin/nvidia-smi"
    for folder in (tmp_path, None):
        with pytest.raises(LeaseError, match="nvidia-smi: no such program"):
            running.find_program(["nvidia-smi"], folder)
    with pytest.raises(LeaseError, match="other: no such program"):
        running.find_program(["other"], engine)


def test_that_of_an_engine_beside_the_first_is_one_too(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As long as no lease says which engine its servers have."""
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    beside = tmp_path / "beside/torch/current"
    beside.parent.mkdir(parents=True)
    engine.rename(beside)
    assert running.find_program(["nvidia-smi"], tmp_path / "current") == f"{beside}/client/bin/nvidia-smi"
    assert shown_gpus.environment(tmp_path / "current", {}, {}) == {}, "another engine's is none of the lease's"


def test_a_container_finds_it_by_its_name(engine: Path) -> None:
    words = images.Here("podman", "x", "sha256:1").command(
        ["nvidia-smi"], {"A": "1"}, [engine], [engine / "client/bin/nvidia-smi"]
    )
    assert f"--volume={engine}/client/bin/nvidia-smi:/usr/local/bin/nvidia-smi:ro" in words
    assert words[-2:] == ["sha256:1", "nvidia-smi"]


def test_what_is_told_of_each_gpu() -> None:
    half = lease_forms.leased_gpu(2, 70, capability="9.0", driver="580.1", cuda=13000)
    mig = lease_forms.leased_gpu(0, 20, gpu_uuid="GPU-9", uuid="MIG-1", limit_mib=None)
    ends = [lease_forms.endpoint("gpu1", devices=(half,)), lease_forms.endpoint("gpu2", devices=(mig,))]
    told = json.loads(gpus_text(ends))
    assert told[0] == {
        "uuid": "GPU-2", "emulated": True, "memory_bytes": 128 << 20, "context_bytes": 0, "name": "Emulated X",
        "server": "gpu1", "server_index": 2, "total_bytes": 256 << 20, "part": "1/2", "capability": "9.0",
        "driver": "580.1", "cuda": 13000,
    }  # fmt: skip
    assert [told[1][key] for key in ("uuid", "server", "part", "memory_bytes", "capability", "driver", "cuda")] == [
        "MIG-1", "gpu2", "1", 256 << 20, "", "", None,
    ]  # fmt: skip


def test_a_lease_that_began_before_an_upgrade_goes_on() -> None:
    """Its record says nothing of capability, driver and CUDA."""
    one = replace(lease_forms.leased_gpu(), capability="9.0", driver="580.1", cuda=13000)
    record = json.loads(lease_forms.instance(devices=(one,)).text())
    for key in ("capability", "driver", "cuda"):
        del record["devices"][0][key]
    assert instance_record.Instance.parse(json.dumps(record)).devices == (
        replace(one, capability="", driver="", cuda=0),
    )


@pytest.mark.parametrize(
    ("key", "value"), [("capability", "9"), ("driver", "a b"), ("driver", "\x1b[31m"), ("cuda", -1)]
)
def test_what_a_server_cannot_have_said_is_refused(key: str, value: object) -> None:
    data = json.loads(lease_forms.instance().text())["devices"][0]
    with pytest.raises(LeaseError, match=rf"{key} is "):
        LeasedGpu.read(Fields({**data, key: value}, "x"))
