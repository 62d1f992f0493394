"""GPUs and adapters by their PCI ids: names, classes for users, refused boards, and ids that nobody knows yet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_preflight import NODE, WANTED
from tests.support.node_modules import load, load_filters
from tests.unit.test_scan_proposals import RAILS, xe9680
from toolkit.lease.server_conf import class_of
from toolkit.scan.answer import Answer, parse
from toolkit.scan.contact import Login
from toolkit.scan.propose import Proposal, propose
from toolkit.scan.reading import Read
from toolkit.scan.wanted import Wanted
from validation.measures.node import facts_probe
from validation.probes import pcie
from validation.rules.gpus import memory_rate

gpu = load("plugins/plugin_utils/gpu.py")
preflight = load("plugins/plugin_utils/preflight.py")
slurm = load("plugins/plugin_utils/slurm.py")
STACK = load_filters("stack")
ROOT = Path(__file__).parents[2]
KNOWN = yaml.safe_load((ROOT / "stacks/compatibility.yml").read_text())
CHIPS = dict(
    line.split() for line in (ROOT / "tests/data/gpu/pci-chips.txt").read_text().splitlines() if line[0] != "#"
)
NVLINK5 = "NVLink 5, whose switches need NVLSM beside Fabric Manager"


def device(ident: str, vendor: str = "0x10de", class_: str = "0x030200", **more: Any) -> dict[str, Any]:
    return {
        "address": "0000:3b:00.0", "vendor": vendor, "device": ident, "class": class_, "numa_node": 0, "driver": "",
        **more,
    }  # fmt: skip


#: By id: the class that a user asks for.
CLASSES = {
    "0x2329": "h20", "0x232c": "h20", "0x2324": "h800", "0x2322": "h800", "0x233a": "h800", "0x2342": "gh200",
    "0x2348": "gh200", "0x20f3": "a800", "0x20f5": "a800", "0x20bd": "a800", "0x2bb5": "pro6000", "0x2bb1": "pro6000",
    "0x2bb2": "pro6000d", "0x2bb9": "rtx6000d", "0x2233": "a5500", "0x2230": "a6000", "0x20b3": "a100",
    "0x20b0": "a100", "0x20b7": "a30", "0x2235": "a40", "0x2236": "a10", "0x26b9": "l40s", "0x26b5": "l40",
    "0x26ba": "l20", "0x27b8": "l4", "0x27b6": "l2", "0x26b1": "rtx6000ada", "0x1e36": "rtx6000",
    "0x2330": "h100", "0x2331": "h100", "0x2321": "h100", "0x2335": "h200", "0x233b": "h200", "0x1db5": "v100",
    "0x1df6": "v100s", "0x15f8": "p100", "0x1b38": "p40", "0x1bb3": "p4", "0x1eb8": "t4", "0x13f2": "m60",
    "0x2901": "b200", "0x2909": "b200", "0x2920": "b100", "0x2941": "gb200", "0x3182": "b300", "0x31c2": "gb300",
    "0x2c34": "pro4000", "0x2399": "id2399", "0x1d99": "id1d99", "0x25b6": "a2-a16",
}  # fmt: skip


@pytest.mark.parametrize("ident", CLASSES)
def test_users_have_a_class_of_each_model(ident: str) -> None:
    found = slurm.slurm_gpus(gpu.gpu_list([device(ident)]), {}, False, False)
    assert found["type"] == CLASSES[ident]
    assert class_of(gpu.gpu_list([device(ident)])[0]["model"]) == CLASSES[ident], "on the node as in the pool"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "pro6000"), ("NVIDIA H20-3e", "h20"), ("NVIDIA H800", "h800"),
        ("NVIDIA GH200 480GB", "gh200"), ("NVIDIA A800-SXM4-80GB", "a800"), ("NVIDIA A800 40GB Active", "a800"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"), ("Quadro RTX 6000", "rtx6000"), ("NVIDIA RTX A5500", "a5500"),
        ("NVIDIA A100-SXM-64GB", "a100"), ("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA B300 SXM6 AC", "b300"),
    ],
)  # fmt: skip
def test_the_driver_s_names_have_the_class_of_the_bus(name: str, wanted: str) -> None:
    assert class_of(name) == slurm.gpu_class(name) == wanted


@pytest.mark.parametrize("subsystem", ["0x14a9", "0x157e"])
def test_models_that_share_an_id_are_told_apart_by_their_board(subsystem: str) -> None:
    found = gpu.gpu_list([device("0x25b6", subsystem=subsystem)])
    assert slurm.gpu_class(found[0]["model"]) == {"0x14a9": "a16", "0x157e": "a2"}[subsystem]


@pytest.mark.parametrize(
    "two", [("0x20b0", "0x20f3"), ("0x2329", "0x2330"), ("0x2398", "0x2399"), ("0x1e36", "0x26b1")]
)
def test_a_mixed_node_is_told_apart(two: tuple[str, str]) -> None:
    with pytest.raises(Exception, match="GPUs of several classes"):
        slurm.slurm_gpus(gpu.gpu_list([device(ident) for ident in two]), {}, False, False)


BLACKWELL_BOARDS = [
    ident for ident, chip in CHIPS.items() if chip in ("GB100", "GB102", "GB110", "GB112", "GB120")
]  # fmt: skip


def stack_reasons(ident: str) -> str:
    facts = {"gpus": gpu.gpu_list([device(ident)]), "os_key": "ubuntu2404", "nvswitches": []}
    return "; ".join(STACK["stack_faults"]({"nvidia_driver": {"provider": "cuda"}}, facts))


def preflight_reasons(pci: list[dict[str, Any]], **wanted: Any) -> str:
    return "; ".join(preflight.preflight_reasons({**NODE, "pci": pci}, {**WANTED, **wanted}))


def test_the_list_has_the_boards_that_are_refused() -> None:
    assert {"2901", "2909", "2920", "2941", "29bc", "3182", "31a1", "31c2", "31c3", "3224"} <= set(BLACKWELL_BOARDS)


@pytest.mark.parametrize("ident", [*BLACKWELL_BOARDS, "2950", "31ff"])
def test_boards_with_nvlink_5_are_refused_wherever_a_driver_would_be_put_on_them(ident: str) -> None:
    assert NVLINK5 in stack_reasons(f"0x{ident}")
    assert NVLINK5 in preflight_reasons([device(f"0x{ident}")], release=""), "also without a stack release"
    _, faults = gpu.module_flavour(gpu.gpu_list([device(f"0x{ident}")]), "auto", "580", has_open=True)
    assert any(NVLINK5 in fault for fault in faults), "also without preflight"


@pytest.mark.parametrize("ident", ["2bb5", "2c34", "2330", "2e12", "20b0"])
def test_others_are_not(ident: str) -> None:
    assert NVLINK5 not in stack_reasons(f"0x{ident}") + preflight_reasons([device(f"0x{ident}")], release="")


def test_a_node_that_gets_no_driver_is_not_refused() -> None:
    assert preflight_reasons([device("0x2909")], gpu_server=False, release="") == ""


@pytest.mark.parametrize("ident", ["0x3021", "0x3401", "0x9999"])
def test_a_generation_that_nobody_knows_is_refused_before_anything_is_installed(ident: str) -> None:
    said = preflight_reasons([device(ident)])
    assert "generation 'unknown' are not known to this toolkit; set nvidia_driver_flavour" in said
    assert ident[2:] in said


def test_a_gpu_without_a_name_is_said() -> None:
    pci = [device("0x2399"), device("0x2399"), device("0x2330")]
    (note,) = preflight.preflight_notes({**NODE, "pci": pci}, {**WANTED, "stack": {}})
    assert note.startswith("GPU 10de:2399 (2) is not in the table of models (stacks/compatibility.yml)")
    assert "its class in Slurm is id2399" in note
    assert preflight.preflight_notes({**NODE, "pci": pci[2:]}, {**WANTED, "stack": {}}) == []


@pytest.mark.parametrize("ident", ["0x1029", "0x2101"])
def test_an_adapter_that_is_not_in_the_table_is_said(ident: str) -> None:
    pci = [device(ident, "0x15b3", "0x020000"), device("0x101e", "0x15b3", "0x020000")]
    (note,) = preflight.preflight_notes({**NODE, "pci": pci}, {**WANTED, "stack": {}})
    assert note.startswith(f"network adapter 15b3:{ident[2:]} is not in the table of adapters")


@pytest.mark.parametrize(("ident", "notes"), [("0x22a3", 0), ("0x1af1", 0), ("0x29ff", 1)])
def test_a_switch_that_is_not_in_the_table_is_said(ident: str, notes: int) -> None:
    pci = [device("0x2330"), device(ident, "0x10de", "0x068000")]
    said = preflight.preflight_notes({**NODE, "pci": pci}, {**WANTED, "stack": {}})
    assert len(said) == notes
    assert all(f"device 10de:{ident[2:]} is not in the table of NVSwitches" in note for note in said)


def proposed(*gpus: dict[str, Any], group: str | None = None) -> Proposal:
    answer = xe9680(1)
    found = parse({**answer, "gpus": [{**answer["gpus"][0], **each} for each in gpus]})
    assert isinstance(found, Answer), found
    models = {**KNOWN["gpu_models"], **KNOWN["gpu_boards"]}
    reads = [Read(Wanted("198.51.100.31", "nodes.csv:2", group=group), Login("198.51.100.31", 22, "ops"), found)]
    return propose(reads, RAILS, models, [], KNOWN["nvlink5"])


@pytest.mark.parametrize(("ident", "name"), [("0x2901", "B200"), ("0x2909", "HGX B200"), ("0x3182", "B300")])
def test_a_reading_of_nodes_refuses_these_boards(ident: str, name: str) -> None:
    (problem,) = proposed({"device": ident}).problems
    assert problem.who.startswith("198.51.100.31")
    assert problem.why.startswith(name)
    assert NVLINK5 in problem.why
    assert not proposed({"device": ident}, group="clients").problems


def test_a_reading_of_nodes_says_ids_that_it_does_not_know() -> None:
    (node,) = proposed({"device": "0x2399"}).nodes
    assert node.bom["gpu_model"] == "PCI device 0x2399"
    assert "GPUs with PCI id 0x2399 are not in this release's table of models" in node.checks
    (node,) = proposed({"device": "0x25b6", "subsystem": "0x14a9"}).nodes
    assert node.bom["gpu_model"] == "A16"


#: Names as the driver has them (NVIDIA's open-gpu-kernel-modules, table of products), GB/s of the data sheets.
RATES = {
    "NVIDIA A800-SXM4-80GB": 2039, "NVIDIA A800 80GB PCIe": 1935, "NVIDIA A800-SXM4-40GB": 1555, "NVIDIA A30": 933,
    "NVIDIA A10": 600, "NVIDIA A2": 200, "NVIDIA A16": 200, "NVIDIA A40": 696, "NVIDIA L20": 864, "NVIDIA L4": 300,
    "NVIDIA L40S": 864, "NVIDIA H20": 4000, "NVIDIA H800": 3350, "NVIDIA H800 PCIe": 2039, "NVIDIA H200": 4800,
    "NVIDIA H200 NVL": 4800, "NVIDIA RTX PRO 6000 Blackwell Server Edition": 1597,
    "NVIDIA A10G": None, "NVIDIA A100X": None, "NVIDIA H20-3e": None, "NVIDIA GB10": None, "NVIDIA L2": None,
}  # fmt: skip


@pytest.mark.parametrize("name", RATES)
def test_a_memory_rate_is_of_its_model_alone(name: str) -> None:
    found = memory_rate(name)
    assert (found.gb_s if found else None) == RATES[name]


def test_a_virtual_function_of_a_gpu_is_no_gpu(tmp_path: Path) -> None:
    """On the host of a vGPU, which gives parts of its GPUs to virtual machines; in one of these it is the GPU."""
    for name in ("0000:3b:00.0", "0000:3b:00.4"):
        folder = tmp_path / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        for key, value in (("vendor", "0x10de"), ("device", "0x20b5"), ("class", "0x030200"), ("numa_node", "0")):
            (folder / key).write_text(f"{value}\n")
    (tmp_path / "bus/pci/devices/0000:3b:00.4/physfn").symlink_to(tmp_path / "bus/pci/devices/0000:3b:00.0")
    pci = load("plugins/modules/node_state.py").read_pci(tmp_path)
    assert [one["address"] for one in gpu.gpu_list(pci)] == ["0000:3b:00.0"]
    assert [card["address"] for card in pcie.collect([], tmp_path)] == ["0000:3b:00.0"]


@pytest.mark.parametrize("quote", ['"', "'", ""])
def test_a_system_is_known_by_its_name_in_every_quote(tmp_path: Path, quote: str) -> None:
    values = {"ID": "rocky", "ID_LIKE": "rhel", "VERSION_ID": "9.4"}
    text = "# NAME=x\nNAME='Rocky Linux'\n" + "".join(f"{k}={quote}{v}{quote} \n" for k, v in values.items())
    (tmp_path / "os-release").write_text(text)
    found = load("plugins/modules/node_preflight.py").read_os(tmp_path / "os-release")
    assert found == {"id": "rocky", "version": "9.4", "rhel_like": True}
    assert facts_probe.operating_system(text) == "rocky 9.4"
