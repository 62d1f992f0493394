"""`toolkit lab up --fabric`: which lab a fabric is rehearsed in, and what contradicts it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from toolkit.commands.lab import lab as command
from toolkit.errors import LabError, UsageFault
from toolkit.lab import lab as labs
from toolkit.lab import wanted as wanted_module
from toolkit.lab.host import VM_TOOLS
from toolkit.lab.rehearsable import describe, needs_machines, too_fast
from toolkit.lab.spec import LabSpec, inventory_dir, make_spec
from toolkit.lab.wanted import LabRequest, WantedLab
from validation.base.errors import ConfigError
from validation.rules.fabric import fabric_names, load_fabric

RATE = 1.0


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder for labs."""
    monkeypatch.setenv("ELASTIC_AI_LAB_DIR", str(tmp_path))
    return tmp_path


def wanted(fabric: str | None, nodes: tuple[int, bool] | None = None, **more: object):
    settings = {"name": "lab", "rate_gbps": RATE, "os_name": None} | more
    return LabRequest(fabric=fabric, nodes=nodes, **settings).checked()  # type: ignore[arg-type]


def test_each_packaged_fabric_has_its_lab_or_is_refused_with_those_that_have() -> None:
    found: dict[str, set[str]] = {"containers": set(), "machines": set(), "none": set()}
    for name in fabric_names():
        try:
            found["machines" if needs_machines(load_fabric(name)) else "containers"].add(name)
        except LabError as fault:
            found["none"].add(name)
            words = str(fault)
            assert words.startswith(f"no lab can rehearse fabric {name}: its ")
    assert {"tcp10", "vmxnet3-10"} <= found["containers"]
    assert {"roce10", "roce40", "roce100"} <= found["machines"]
    assert found["none"] == {n for n in fabric_names() if n.startswith("ib-")} | {"pvrdma100"}
    named = words.partition("these can be rehearsed: ")[2].replace("(", ",").replace(")", ",").split(",")
    assert {n.strip() for n in named} & set(fabric_names()) == found["containers"] | found["machines"]


def test_a_sites_own_fabric_of_another_mtu_has_no_lab() -> None:
    fabric = load_fabric("tcp10").model_copy(update={"name": "ours", "mtu": 1500})
    with pytest.raises(
        LabError, match="no lab can rehearse fabric ours: its MTU is 1500, and that of a lab's links is 9000"
    ):
        needs_machines(fabric)


def test_the_fabric_says_what_the_nodes_are() -> None:
    assert (wanted("roce40").count, wanted("roce40").vms) == (4, True)
    assert (wanted("tcp10").count, wanted("tcp10").vms) == (4, False)
    assert wanted("tcp10", (6, False)).count == 6
    assert wanted("roce40", (4, True)).vms
    assert not wanted(None).vms
    more = wanted("roce40", rate_gbps=10.0, os_name="debian13", name="other")
    assert more.command == "toolkit lab up --fabric roce40 --rate 10 --os debian13 --name other"
    assert wanted(None, (4, True)).command == "toolkit lab up --nodes vm"


@pytest.mark.parametrize(
    ("fabric", "nodes", "words"),
    [
        (
            "roce40",
            (6, False),
            "--fabric roce40 is rehearsed with virtual machines with Soft-RoCE, but --nodes 6 asks for cont",
        ),
        ("tcp10", (4, True), "--fabric tcp10 is rehearsed with containers, but --nodes vm asks for virtual machines"),
    ],
)
def test_nodes_that_contradict_the_fabric_are_refused_with_both(
    fabric: str, nodes: tuple[int, bool], words: str
) -> None:
    with pytest.raises(UsageFault) as caught:
        wanted(fabric, nodes)
    assert words in str(caught.value)


def test_an_unknown_fabric_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown fabric 'roce41'; did you mean roce40"):
        wanted("roce41")


def standing(monkeypatch: pytest.MonkeyPatch, spec: LabSpec, running: bool = True, healthy: bool = True) -> LabSpec:
    """A lab whose nodes are as said; taking it down fails the test."""
    spec.dir.mkdir(parents=True)
    (spec.dir / "spec.json").write_text(json.dumps(asdict(spec)))
    state = SimpleNamespace(running=running, ssh=healthy, fault=None)
    monkeypatch.setattr(labs, "status", lambda _name: [state for _ in spec.nodes])
    monkeypatch.setattr(labs, "_clear", lambda *_: pytest.fail("the lab was taken down"))
    return spec


@pytest.mark.parametrize("healthy", [True, False])
def test_a_lab_of_the_wrong_sort_is_told_and_not_taken_down(
    monkeypatch: pytest.MonkeyPatch, state: Path, healthy: bool
) -> None:
    standing(monkeypatch, make_spec("lab", 3, 4, RATE), healthy=healthy)
    monkeypatch.setattr(labs, "check_ready", lambda _vms, rpms, lldp: None)
    for module in (labs, wanted_module):
        monkeypatch.setattr(module, "release_for", lambda _name: SimpleNamespace(title="debian 12", over=""))
    asked = wanted("roce40")
    with pytest.raises(LabError) as caught:
        labs.up(asked, lambda _: None)
    assert str(caught.value) == (
        "lab 'lab' is up with 4 nodes (containers) of debian12 at 1 Gbit/s; "
        "run 'toolkit lab down' first, then 'toolkit lab up --fabric roce40'"
    )


def test_a_lab_that_fits_is_left_and_one_that_does_not_run_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = standing(monkeypatch, replace(make_spec("lab", 3, 4, RATE, vms=True), accel="tcg"))
    assert labs.running_as_asked(make_spec("lab", 0, 4, RATE, vms=True), "") == spec
    state = SimpleNamespace(running=False, ssh=False, fault=None)
    monkeypatch.setattr(labs, "status", lambda _name: [state])
    assert labs.running_as_asked(make_spec("lab", 0, 4, RATE), "") is None


def test_the_inventory_is_written_into_the_labs_folder_and_where_a_copy_is_wanted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    written: list[Path] = []
    spec = make_spec("lab", 3, 4, RATE)
    monkeypatch.setattr(labs, "check_ready", lambda _vms, rpms, lldp: None)
    monkeypatch.setattr(labs, "running_as_asked", lambda *_: None)
    monkeypatch.setattr(labs, "_clear", lambda *_: None)  # the real one takes away the networks of a lab that runs
    monkeypatch.setattr(labs, "_make", lambda *_: (spec, None, None))
    monkeypatch.setattr(labs, "write_inventory", lambda _spec, folder, *_, **_more: written.append(folder))
    labs.up(WantedLab(), lambda _: None, copy=tmp_path / "copy")
    assert written == [inventory_dir("lab"), tmp_path / "copy"]
    written.clear()
    labs.up(WantedLab(), lambda _: None)
    assert written == [inventory_dir("lab")]


def test_needs_prints_packages_and_says_what_the_lab_is() -> None:
    runner = CliRunner()
    done = runner.invoke(command, ["needs", "--fabric", "roce40"])
    assert done.exit_code == 0, done.output
    assert set(VM_TOOLS.values()) < set(done.stdout.split())
    said = "head, client1: containers; gpu1, gpu2: virtual machines with Soft-RoCE; links of 1 Gbit/s"
    assert done.stderr.strip() == said == describe(wanted("roce40").spec())
    plain = runner.invoke(command, ["needs", "--fabric", "tcp10"])
    assert not set(VM_TOOLS.values()) & set(plain.stdout.split())
    document = json.loads(runner.invoke(command, ["needs", "--fabric", "roce40", "--json"]).stdout)
    assert document["packages"] == done.stdout.split()
    assert [n["kind"] for n in document["nodes"]] == ["container", "container", "vm", "vm"]


def test_needs_refuses_what_up_would_refuse(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CliRunner().invoke(command, ["needs", "--fabric", "ib-edr"])
    assert isinstance(refused.exception, LabError)
    standing(monkeypatch, make_spec("lab", 3, 4, RATE, vms=True))
    refused = CliRunner().invoke(command, ["needs", "--fabric", "tcp10"])
    assert isinstance(refused.exception, LabError)
    assert "(2 virtual machines)" in str(refused.exception)
    assert str(refused.exception).endswith("then 'toolkit lab up --fabric tcp10'")


@pytest.mark.parametrize(
    ("count", "rate_gbps", "cores", "words"),
    [
        (60, 1.0, 2, "time, 30 Gbit/s, and 2 processors carry about 16: links will look slow; --rate 0.5 fits"),
        (60, 0.5, 2, ""),
        (60, 1.0, 1, "--rate 0.2 fits"),
        (4, 1.0, 2, ""),
        (4, 10.0, 2, "--rate 8 fits"),
    ],
)
def test_links_that_the_processors_cannot_fill_are_told(count: int, rate_gbps: float, cores: int, words: str) -> None:
    said = too_fast(make_spec("lab", 0, count, rate_gbps), cores)
    assert said.endswith(words)
    assert bool(said) == bool(words)
