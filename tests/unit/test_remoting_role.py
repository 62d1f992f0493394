"""Role remoting_server by its variables: what it starts and installs, as Ansible would template it."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

from tests.support.node_modules import ROOT
from tests.support.role_values import role_values

PROGRAM = "/usr/bin/nvidia-cuda-mps-control"
UNIT = "elastic-ai-mps.service"


def role(name_of: str, which: str = "remoting_server", **given: Any) -> Any:
    """A variable of the role with these of the inventory."""
    loader = DataLoader()
    variables: dict[str, Any] = {"role_path": str(ROOT / "roles" / which), "inventory_hostname": "gpu1"}
    for name in ("defaults", "vars"):
        variables |= loader.load_from_file(str(ROOT / f"roles/{which}/{name}/main.yml"), trusted_as_template=True)
    return Templar(loader, variables | given).template(trust_as_template("{{ " + name_of + " }}"))


def test_the_mps_daemon_runs_where_parts_are_held_by_it() -> None:
    mps: dict[str, Any] = {"remoting_server_enforcement": "mps"}
    expected = [
        (mps, True, True),
        (mps, False, False),
        ({**mps, "remoting_server_mps_daemon": False}, True, False),
        ({"remoting_server_enforcement": "mig"}, True, False),
        ({}, True, False),
    ]
    cases = [
        {
            "role_path": str(ROOT / "roles/remoting_server"),
            "inventory_hostname": "gpu1",
            "remoting_server_mps_seen": {"files": {PROGRAM: {}} if program else {}},
            "remoting_server_found": {"problem": ""},
            **given,
        }
        for given, program, _ in expected
    ]
    names = ["__remoting_server_units", "__remoting_server_not_applicable"]
    for (given, program, started), values in zip(expected, role_values("remoting_server", names, cases), strict=True):
        assert (UNIT in values["__remoting_server_units"]) is started
        wanted = given.get("remoting_server_enforcement") == "mps" and given.get("remoting_server_mps_daemon", True)
        missing = values["__remoting_server_not_applicable"]
        assert any("no MPS daemon" in words for words in missing) is (wanted and not program)


def test_a_teardown_stops_the_mps_daemon_whatever_holds_parts_then() -> None:
    assert UNIT in role("__remoting_server_units", remoting_server_state="absent")


def test_packages_of_the_engines_libraries_are_the_roles() -> None:
    for given, wanted in (
        ({}, ["nftables", "sudo"]),
        ({"remoting_engine_packages": ["libnghttp2-14"]}, ["nftables", "sudo", "libnghttp2-14"]),
    ):
        assert role("__remoting_server_packages", **given) == wanted


@pytest.mark.parametrize(
    ("servers", "ports"),
    [
        ({}, "21000-23999"),
        ({"gpu1": {}}, "21000-23999"),
        ({"gpu1": {"remoting_server_ports": [30000, 30099]}}, "30000-30099"),
        ({"gpu1": {"remoting_server_ports": [30000, 30099]}, "gpu2": {}}, "21000-30099"),
    ],
)
def test_each_user_of_a_client_begins_so_many_connections(servers: dict[str, Any], ports: str) -> None:
    given = {"groups": {"gpu_servers": list(servers)}, "hostvars": servers}
    assert role("__remoting_client_ports", "remoting_client", **given) == ports
    rules = (ROOT / "roles/remoting_client/templates/arrivals.nft.j2").read_text()
    assert "meta skuid limit rate over {{ __remoting_client_arrivals.per_s }}/second" in rules
    assert "meta skuid != 0" in rules


def test_the_engine_of_pytorch_is_beside_the_first_and_has_a_pytorch(tmp_path: Path) -> None:
    archive = tmp_path / "torch.tar.gz"
    about = json.dumps({"engine": "torch", "release": "1", "torch": ["2.12", "2.13"]}).encode()
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("engine.json")
        member.size = len(about)
        tar.addfile(member, io.BytesIO(about))
    given: dict[str, Any] = {
        "role_path": str(ROOT / "roles/remoting_server"),
        "inventory_hostname": "gpu1",
        "remoting_server_found": {"problem": ""},
        "remoting_engine_torch_artifact": str(archive),
        "remoting_engine_torch_sha256": "a" * 64,
        "ansible_facts": {"os_family": "Debian"},
    }
    venv = "/opt/elastic-ai/engine/beside/torch/venv"
    pip = [f"{venv}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    mirror = {"remoting_server_torch_index": "https://mirror.example/simple", "remoting_server_torch_version": "2.12.1"}
    url = {"remoting_engine_torch_artifact": "https://mirror.example/engine.tar.gz"}
    changes: list[dict[str, Any]] = [
        {}, mirror, {"remoting_server_torch_wheels": "/srv/w"}, {"remoting_server_torch_python": "/opt/py"}, url,
    ]  # fmt: skip
    names = ("artifacts", "torch_pip", "torch_python", "packages", "torch_version", "not_applicable")
    cases = [{**given, **change} for change in changes]
    found = role_values("remoting_server", [f"__remoting_server_{name}" for name in names], cases)
    plain, by_mirror, by_wheels, own, by_url = (
        {name: values[f"__remoting_server_{name}"] for name in names} for values in found
    )
    assert plain["artifacts"]["torch"] == {
        "path": str(archive), "sha256": "a" * 64, "root": "/opt/elastic-ai/engine/beside/torch",
        "variable": "remoting_engine_torch",
    }  # fmt: skip
    assert plain["torch_pip"] == [*pip, "torch==2.13.*"]
    assert by_mirror["torch_pip"] == [*pip, "--index-url", "https://mirror.example/simple", "torch==2.12.1"]
    assert by_wheels["torch_pip"] == [*pip, "--no-index", "--find-links", "/srv/w", "torch==2.13.*"]
    assert plain["torch_python"] == f"{venv}/bin/python"
    assert "python3-venv" in plain["packages"]
    assert own["torch_python"] == "/opt/py"
    assert "python3-venv" not in own["packages"]
    assert by_url["torch_version"] == "", "its archive is not on this machine"
    assert plain["not_applicable"] == [], "it may be the only engine"


def test_the_engine_of_tensorflow_is_beside_the_first_and_has_a_tensorflow(tmp_path: Path) -> None:
    archive = tmp_path / "tensorflow.tar.gz"
    about = json.dumps({"engine": "tensorflow", "release": "1", "tensorflow": ["2.20", "2.21"]}).encode()
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("engine.json")
        member.size = len(about)
        tar.addfile(member, io.BytesIO(about))
    given: dict[str, Any] = {
        "role_path": str(ROOT / "roles/remoting_server"),
        "inventory_hostname": "gpu1",
        "remoting_server_found": {"problem": ""},
        "remoting_engine_tensorflow_artifact": str(archive),
        "remoting_engine_tensorflow_sha256": "a" * 64,
        "ansible_facts": {"os_family": "Debian"},
    }
    venv = "/opt/elastic-ai/engine/beside/tensorflow/venv"
    pip = [f"{venv}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    mirror = {
        "remoting_server_tensorflow_index": "https://mirror.example/simple",
        "remoting_server_tensorflow_version": "2.20.1",
        "remoting_server_tensorflow_wheel": "tensorflow-cpu",
    }
    url = {"remoting_engine_tensorflow_artifact": "https://mirror.example/engine.tar.gz"}
    changes: list[dict[str, Any]] = [
        {}, mirror, {"remoting_server_tensorflow_wheels": "/srv/w"}, {"remoting_server_tensorflow_python": "/opt/py"},
        url,
    ]  # fmt: skip
    names = ("artifacts", "tensorflow_pip", "tensorflow_python", "packages", "tensorflow_version", "not_applicable")
    cases = [{**given, **change} for change in changes]
    found = role_values("remoting_server", [f"__remoting_server_{name}" for name in names], cases)
    plain, by_mirror, by_wheels, own, by_url = (
        {name: values[f"__remoting_server_{name}"] for name in names} for values in found
    )
    assert plain["artifacts"]["tensorflow"] == {
        "path": str(archive), "sha256": "a" * 64, "root": "/opt/elastic-ai/engine/beside/tensorflow",
        "variable": "remoting_engine_tensorflow",
    }  # fmt: skip
    assert plain["tensorflow_pip"] == [*pip, "tensorflow[and-cuda]==2.21.*"]
    assert by_mirror["tensorflow_pip"] == [
        *pip,
        "--index-url",
        "https://mirror.example/simple",
        "tensorflow-cpu==2.20.1",
    ]
    assert by_wheels["tensorflow_pip"] == [*pip, "--no-index", "--find-links", "/srv/w", "tensorflow[and-cuda]==2.21.*"]
    assert plain["tensorflow_python"] == f"{venv}/bin/python"
    assert "python3-venv" in plain["packages"]
    assert own["tensorflow_python"] == "/opt/py"
    assert "python3-venv" not in own["packages"]
    assert by_url["tensorflow_version"] == "", "its archive is not on this machine"
    assert plain["not_applicable"] == [], "it may be the only engine"
