"""Parts of a node by every name, as `toolkit support` looks them up, and the log lines that are theirs."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.support.site import provenance, result
from toolkit.errors import UsageFault
from toolkit.support.measured import LastRun, parts_of
from toolkit.support.parts import Part, find, lines_of, of_bmc, of_node, union
from validation.model.node_facts import NodeFacts
from validation.model.parts import HostParts
from validation.model.parts import Part as HostPart
from validation.run.read import Run

GPU_KERNEL = {"kind": "gpu", "pci": "0000:3b:00.0", "above": ["0000:3a:01.0"], "slot": "31", "uuid": "GPU-1"}
GPU_SMI = {"kind": "gpu", "index": 3, "uuid": "GPU-1", "serial": "165092", "pci": "0000:3b:00.0", "model": "H200"}
GPU_BMC = {"kind": "gpu", "slot": "GPU.Slot.31-1", "serial": "165092", "firmware": "96.00"}
LOST_BMC = {"kind": "gpu", "slot": "GPU.Slot.32-1", "serial": "165093"}
PORT_0 = {"kind": "nic", "interface": "ens1f0np0", "pci": "0000:5e:00.0", "serial": "MT1", "rdma": "mlx5_0",
          "macs": ["aa:bb:cc:00:00:01"]}  # fmt: skip
PORT_1 = {"kind": "nic", "interface": "ens1f1np1", "pci": "0000:5e:00.1", "serial": "MT1", "rdma": "mlx5_1"}
DIMM = {"kind": "dimm", "slot": "A1", "serial": "D1"}


def every() -> list[Part]:
    node = [of_node(one) for one in (GPU_KERNEL, PORT_0, PORT_1, DIMM, GPU_SMI, {"kind": "server", "serial": "SVC1"})]
    bmc = [of_bmc(one) for one in (GPU_BMC, LOST_BMC, {"kind": "psu", "slot": "PSU.Slot.1", "serial": "P1"})]
    return union(part for part in (*node, *bmc) if part is not None)


def test_each_part_is_there_once_with_what_all_know_of_it() -> None:
    parts = every()
    assert [part.kind for part in parts] == ["server", "gpu", "gpu", "nic", "dimm", "psu"]
    gpu = parts[1]
    assert (gpu.index, gpu.slot, gpu.bmc_slot, gpu.firmware, gpu.seen_by) == (
        3, "31", "GPU.Slot.31-1", "96.00", ("node", "BMC"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("word", "found"),
    [("165092", "165092"), ("3", "165092"), ("gpu3", "165092"), ("GPU3", "165092"), ("GPU-1", "165092"),
     ("31", "165092"),
     ("0000:3b:00.0", "165092"), ("3B:00.0", "165092"), ("00000000:3B:00.0", "165092"), ("gpu.slot.31-1", "165092"),
     ("165093", "165093"), ("ens1f1np1", "MT1"), ("mlx5_0", "MT1"), ("aa:bb:cc:00:00:01", "MT1"), ("5e:00.1", "MT1"),
     ("A1", "D1"), ("P1", "P1"), ("svc1", "SVC1")],
)  # fmt: skip
def test_a_part_is_found_by_each_of_its_names(word: str, found: str) -> None:
    part = find(every(), word)
    assert part is not None
    assert part.serial == found


@pytest.mark.parametrize("nothing", ["N/A", "Not Specified", "00000000", "To Be Filled By O.E.M."])
def test_parts_without_a_serial_number_are_not_one_part(nothing: str) -> None:
    two = [of_node({"kind": "nic", "pci": f"0000:{bus}:00.0", "serial": nothing}) for bus in ("3b", "5e")]
    parts = union(part for part in two if part is not None)
    assert [(part.pci, part.serial) for part in parts] == [(("0000:3b:00.0",), ""), (("0000:5e:00.0",), "")]


def test_a_plain_number_is_the_index_of_a_gpu_before_it_is_a_slot() -> None:
    parts = [Part("nic", slot="3", serial="n"), Part("gpu", index=3, slot="7", serial="g"), Part("drive", slot="7")]
    assert find(parts, "3") == parts[1]
    assert find(parts[:1], "3") == parts[0]


def test_no_part_and_several_parts() -> None:
    assert find(every(), "4") is None
    twins = [Part("gpu", slot="7", serial="a"), Part("drive", slot="7", serial="b")]
    with pytest.raises(UsageFault, match="names 2 parts"):
        find(twins, "7")


@pytest.mark.parametrize(
    ("word", "line", "mine"),
    [("3", "NVRM: Xid (PCI:0000:3b:00): 79, pid=1", True), ("3", "NVRM: GPU at PCI:0000:3b:00: GPU-1", True),
     ("3", "pcieport 0000:3a:01.0: AER: Corrected error", True), ("3", "NVRM: Xid (PCI:0000:4b:00): 79", False),
     ("3", "3b:00.0 on the bus", True), ("3", "at 20:3b:00.0", False), ("3", "0000:3b:001", False),
     ("ens1f0np0", "mlx5_core 0000:5e:00.1 ens1f1np1: Link down", True), ("mlx5_0", "infiniband mlx5_0: dead", True),
     ("mlx5_0", "infiniband mlx5_01: dead", False), ("A1", "EDAC MC0: 1 CE on DIMM_A1", True),
     ("A1", "code: a1 b2 c3", False)],
)  # fmt: skip
def test_log_lines_of_a_part_and_of_no_other(word: str, line: str, mine: bool) -> None:
    part = find(every(), word)
    assert part is not None
    assert bool(re.search(lines_of(part), line, re.IGNORECASE)) is mine


def test_what_a_node_says_of_a_part_is_taken_with_care() -> None:
    assert of_node({"kind": "rocket"}) is None
    part = of_node({"kind": "gpu", "serial": "a\x1b[31m" + "x" * 500, "pci": ["../x", "0000:3b:00.0"], "index": True})
    assert part is not None
    assert ("\x1b" in part.serial, len(part.serial) <= 120, part.pci, part.index) == (
        False,
        True,
        ("0000:3b:00.0",),
        None,
    )
    assert re.fullmatch(r"[A-Za-z0-9-]+", Part("nic", interfaces=("../../x y",)).label)


def test_of_a_node_that_lists_parts_without_an_end_some_are_kept() -> None:
    assert len(union(Part("dimm", slot=str(number)) for number in range(600))) == 500


def test_a_part_that_is_gone_has_the_place_that_the_last_run_saw(tmp_path: Path) -> None:
    """The BMC knows its serial number, the run its PCI address: its log lines are found."""
    gpu = HostPart(kind="gpu", slot="00000000:3b:00.0", serial="165093", model="H200")
    port = HostPart(kind="nic", slot="ens1f0np0", serial="MT1")
    facts = NodeFacts.model_construct(parts=HostParts(serial="SVC1", gpus=(gpu,), nics=(port,)))
    results = [result("facts.gpu2", facts=facts, provenance=provenance(["gpu2"]))]
    run = cast(Run, SimpleNamespace(results=results, folder=tmp_path / "r1"))
    known = parts_of(LastRun(run), "gpu2")
    assert {part.seen_by for part in known} == {("run r1",)}
    part = find(union([of for of in (of_bmc(LOST_BMC),) if of is not None] + known), "gpu.slot.32-1")
    assert part is not None
    assert part.pci == ("0000:3b:00.0",)
    assert re.search(lines_of(part), "NVRM: Xid (PCI:0000:3b:00): 79")
    assert parts_of(LastRun(run), "gpu3") == []
    assert parts_of(LastRun(None), "gpu2") == []
