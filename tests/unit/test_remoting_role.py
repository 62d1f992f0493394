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
    """A variable of the role with these of the inventory; of several lines: a template of its."""
    loader = DataLoader()
    variables: dict[str, Any] = {"role_path": str(ROOT / "roles" / which), "inventory_hostname": "gpu1"}
    for name in ("defaults", "vars"):
        variables |= loader.load_from_file(str(ROOT / f"roles/{which}/{name}/main.yml"), trusted_as_template=True)
    expression = name_of if "\n" in name_of else "{{ " + name_of + " }}"
    return Templar(loader, variables | given).template(trust_as_template(expression))


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


@pytest.mark.parametrize(
    ("groups", "keeps"),
    [
        ({"clients": ["node1"], "gpu_servers": ["gpu1"]}, True),
        ({"heads": ["node1"], "gpu_servers": ["gpu1"]}, True),
        ({"heads": ["head"], "gpu_servers": ["node1"]}, False),
        ({"heads": ["node1"], "clients": ["node1"], "gpu_servers": ["node1"]}, True),
    ],
)
def test_units_of_users_are_started_where_they_log_in_and_not_on_a_gpu_server(
    groups: dict[str, Any], keeps: bool
) -> None:
    given = {"groups": groups, "inventory_hostname": "node1"}
    assert role("__remoting_client_kept", "remoting_client", **given) == ("present" if keeps else "absent")
    template = (ROOT / "roles/remoting_client/templates/sudoers.j2").read_text(encoding="utf-8")
    sudoers = role(template, "remoting_client", **given)
    assert "bin/extend\n" in sudoers
    assert ("NOPASSWD: /usr/lib/elastic-ai/lease/bin/keep\n" in sudoers) is keeps
    assert ("Defaults!/usr/lib/elastic-ai/lease/bin/keep !pam_session\n" in sudoers) is keeps


@pytest.mark.parametrize(
    ("name", "releases", "wanted", "own", "mirrored"),
    [
        ("torch", ["2.12", "2.13"], "torch==2.13.*", {"version": "2.12.1"}, "torch==2.12.1"),
        (
            "tensorflow", ["2.20", "2.21"], "tensorflow[and-cuda]==2.21.*",
            {"version": "2.20.1", "wheel": "tensorflow-cpu"}, "tensorflow-cpu==2.20.1",
        ),
    ],
)  # fmt: skip
def test_the_engine_of_a_framework_is_beside_the_first_and_has_its_framework(
    tmp_path: Path, name: str, releases: list[str], wanted: str, own: dict[str, str], mirrored: str
) -> None:
    archive = tmp_path / f"{name}.tar.gz"
    about = json.dumps({"engine": name, "release": "1", name: releases}).encode()
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("engine.json")
        member.size = len(about)
        tar.addfile(member, io.BytesIO(about))
    given: dict[str, Any] = {
        "role_path": str(ROOT / "roles/remoting_server"),
        "inventory_hostname": "gpu1",
        "remoting_server_found": {"problem": ""},
        f"remoting_engine_{name}_artifact": str(archive),
        f"remoting_engine_{name}_sha256": "a" * 64,
        "ansible_facts": {"os_family": "Debian"},
    }
    venv = f"/opt/elastic-ai/engine/beside/{name}/venv"
    pip = [f"{venv}/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    index = "https://mirror.example/simple"
    mirror = {f"remoting_server_{name}_{key}": value for key, value in {"index": index, **own}.items()}
    wheels, python = ({f"remoting_server_{name}_{key}": f"/srv/{key}"} for key in ("wheels", "python"))
    url = {f"remoting_engine_{name}_artifact": "https://mirror.example/engine.tar.gz"}
    names = ("artifacts", f"{name}_pip", f"{name}_python", "packages", f"{name}_version", "not_applicable")
    cases = [{**given, **change} for change in ({}, mirror, wheels, python, url)]
    found = role_values("remoting_server", [f"__remoting_server_{one}" for one in names], cases)
    plain, by_mirror, by_wheels, by_own, by_url = (
        {one: values[f"__remoting_server_{one}"] for one in names} for values in found
    )
    assert plain["artifacts"][name] == {
        "path": str(archive), "sha256": "a" * 64, "root": f"/opt/elastic-ai/engine/beside/{name}",
        "variable": f"remoting_engine_{name}",
    }  # fmt: skip
    assert plain[f"{name}_pip"] == [*pip, wanted]
    assert by_mirror[f"{name}_pip"] == [*pip, "--index-url", index, mirrored]
    assert by_wheels[f"{name}_pip"] == [*pip, "--no-index", "--find-links", "/srv/wheels", wanted]
    assert plain[f"{name}_python"] == f"{venv}/bin/python"
    assert "python3-venv" in plain["packages"]
    assert by_own[f"{name}_python"] == "/srv/python"
    assert "python3-venv" not in by_own["packages"]
    assert by_url[f"{name}_version"] == "", "its archive is not on this machine"
    assert plain["not_applicable"] == [], "it may be the only engine"
