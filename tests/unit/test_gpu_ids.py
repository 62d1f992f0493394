"""GPUs and adapters by their PCI ids: names, classes for users, refused boards, and ids that nobody knows yet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.functional.test_preflight import NODE, WANTED
from tests.functional.test_preflight_site import SITE
from tests.support.node_modules import load
from tests.unit.test_scan_proposals import RAILS, xe9680
from toolkit.lease.server_conf import class_of
from toolkit.scan.answer import Answer, parse
from toolkit.scan.contact import Login
from toolkit.scan.propose import Proposal, propose
from toolkit.scan.reading import Read
from toolkit.scan.served import Served
from toolkit.scan.wanted import Wanted
from validation.measures.collectives.bounds import NVLINK_GB_S
from validation.measures.node import facts_probe, inventory_scan_probe
from validation.probes import pcie
from validation.rules.gpus import memory_rate, nvlinks

gpu = load("plugins/plugin_utils/gpu.py")
preflight = load("plugins/plugin_utils/preflight.py")
slurm = load("plugins/plugin_utils/slurm.py")
ROOT = Path(__file__).parents[2]
KNOWN = yaml.safe_load((ROOT / "stacks/compatibility.yml").read_text())
CHIPS = dict(
    line.split() for line in (ROOT / "tests/data/gpu/pci-chips.txt").read_text().splitlines() if line[0] != "#"
)


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


def preflight_reasons(pci: list[dict[str, Any]], **wanted: Any) -> str:
    return "; ".join(preflight.preflight_reasons({**NODE, "pci": pci}, {**WANTED, **wanted}))


def test_the_list_has_the_boards_with_nvlink_5() -> None:
    assert {"2901", "2909", "2920", "2941", "29bc", "3182", "31a1", "31c2", "31c3", "3224"} <= set(BLACKWELL_BOARDS)
    assert all(gpu.has_nvlink5(f"0x{ident}") for ident in [*BLACKWELL_BOARDS, "2950", "31ff"])
    assert not any(gpu.has_nvlink5(f"0x{ident}") for ident in ("2bb5", "2c34", "2330", "2e12", "20b0"))


def port(manages: bool | None) -> dict[str, Any]:
    """A ConnectX-7 for InfiniBand, with what its vital product data says; None: nobody could read it."""
    return device("0x1021", "0x15b3", "0x020700", **({} if manages is None else {"manages_switches": manages}))


GUEST = {**SITE, "guest": True}
UNMANAGED = "none of the ConnectX-7 functions through which its NVSwitches are managed is on the PCI bus"


@pytest.mark.parametrize(
    ("pci", "refused"),
    [
        ([device("0x2901")] * 8, True),
        ([*[device("0x3182")] * 8, port(False)], True),
        ([*[device("0x2901")] * 8, port(False), port(True)], False),
        ([*[device("0x2901")] * 8, port(None)], False),
        ([device("0x2901"), port(False)], False),
        ([device("0x2bb5")] * 8, False),
    ],
)
def test_several_gpus_with_nvlink_5_whose_nvswitches_nothing_manages(pci: list[dict[str, Any]], refused: bool) -> None:
    """A guest is not refused, for its host may manage them."""
    wanted = {"stack": {}, "site": {}, "gpu_server": True}
    assert (UNMANAGED in preflight_reasons(pci, **wanted)) == refused
    notes = preflight.preflight_notes({**NODE, "pci": pci}, {**WANTED, **wanted, "site": GUEST})
    assert any(UNMANAGED in note for note in notes) == refused
    assert UNMANAGED not in preflight_reasons(pci, **{**wanted, "site": GUEST})
    assert UNMANAGED not in preflight_reasons(pci, **{**wanted, "gpu_server": False})


def test_nvlsm_needs_what_role_ofed_sets_up() -> None:
    pci = [device("0x2901"), port(True)]
    assert "remove ofed_state: absent" in preflight_reasons(pci, left_out=["ofed"])
    assert "ofed_state" not in preflight_reasons(pci)
    assert "ofed_state" not in preflight_reasons([device("0x2330")], left_out=["ofed"])


def test_a_node_that_gets_no_driver_is_not_refused() -> None:
    assert preflight_reasons([device("0x2909")] * 2, gpu_server=False, release="") == ""


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
    reads = [Read(Wanted("198.51.100.31", "nodes.csv:2", group=group), Login("198.51.100.31", 22, "ops"), found)]
    return propose(reads, RAILS, Served.of(KNOWN), [])


@pytest.mark.parametrize(("ident", "name"), [("0x2901", "B200"), ("0x2909", "HGX B200"), ("0x3182", "B300")])
def test_a_reading_of_nodes_takes_boards_with_nvlink_5(ident: str, name: str) -> None:
    (node,) = proposed({"device": ident}).nodes
    assert node.bom["gpu_model"].startswith(name)


def test_the_page_has_nvlinks_and_classes_as_the_tables_have_them() -> None:
    page = (ROOT / "docs/how-to/provisioning.md").read_text(encoding="utf-8")
    table = page.split("### Which GPUs and adapters")[1].split("\n\n")[1]
    classes = {slurm.gpu_class(model) for model in KNOWN["gpu_models"].values()}
    named = re.findall(r"`([a-z0-9]+)`", re.sub(r"\|[^|]*\|[^|]*\|$", "", table, flags=re.MULTILINE))
    assert len(named) > 15
    assert set(named) <= classes
    models = {
        "V100 SXM": "Tesla V100-SXM2-32GB", "A100 SXM": "NVIDIA A100-SXM4-80GB", "A800 SXM": "NVIDIA A800-SXM4-80GB",
        "H100, H200, H20": "NVIDIA H200", "H800": "NVIDIA H800", "GB200, GB300": "NVIDIA GB200",
    }  # fmt: skip
    for words, name in models.items():
        row = nvlinks(name)
        assert row is not None
        found = re.search(rf"(?<![\w, ]){words}: (\d+)|, {words}: (\d+)|\b{words}: (\d+)", table)
        assert found is not None, words
        assert int(next(filter(None, found.groups()))) == row.links, words
    b200 = nvlinks("NVIDIA B200")
    assert b200 is not None
    assert f"{b200.links} of {b200.rate_mb_s // 1000} GB/s" in table


def answered(**more: Any) -> Proposal:
    found = parse(xe9680(1, **more))
    assert isinstance(found, Answer), found
    reads = [Read(Wanted("198.51.100.31", "nodes.csv:2"), Login("198.51.100.31", 22, "ops"), found)]
    return propose(reads, RAILS, Served.of(KNOWN), [])


def test_a_reading_of_nodes_refuses_arm_whatever_it_is_for() -> None:
    for group in (None, "heads", "clients"):
        found = Served.of(KNOWN).why_not(parse(xe9680(1, machine="aarch64")), group)  # type: ignore[arg-type]
        assert found is not None
        assert found.startswith("is aarch64, and ARM servers (GH200, GB200 and GB300 with Grace among them) need pack")
        assert found.endswith("leave the node out of the list")
    (problem,) = answered(machine="aarch64", gpus=[]).problems
    assert "is aarch64" in problem.why
    assert not answered(machine="x86_64").problems


def test_a_reading_of_nodes_refuses_accelerators_of_other_makers() -> None:
    """Without it they would be clients, or the head, for they have no NVIDIA GPU."""
    (problem,) = answered(gpus=[], accelerators=["1002:74a1"] * 8).problems
    assert problem.why == (
        "its accelerators (AMD 1002:74a1 (8)) are not NVIDIA's, which alone are served: leave the node out of the "
        "list, or name its group there (heads, clients)"
    )
    assert not answered(accelerators=["1002:74a1"]).problems, "one beside NVIDIA's GPUs"
    assert not answered(gpus=[], accelerators=["1af4:1050"]).problems, "another maker's display"
    found = parse(xe9680(1, gpus=[], accelerators=["1002:74a1"]))
    assert Served.of(KNOWN).why_not(found, "clients") is None  # type: ignore[arg-type]


def test_the_probe_names_accelerators_by_their_ids(tmp_path: Path) -> None:
    planted = {
        "0000:05:00.0": ("0x1002", "0x74a1", "0x120000"), "0000:06:00.0": ("0x1002", "0x740f", "0x038000"),
        "0000:00:02.0": ("0x8086", "0x46d0", "0x038000"), "0000:3b:00.0": ("0x10de", "0x2330", "0x030200"),
        "0000:02:00.0": ("0x102b", "0x0536", "0x030000"), "0001:07:00.0": ("0x1da3", "0x1020", "0x120000"),
    }  # fmt: skip
    for name, ids in planted.items():
        folder = tmp_path / "bus/pci/devices" / name
        folder.mkdir(parents=True)
        for key, value in zip(("vendor", "device", "class"), ids, strict=True):
            (folder / key).write_text(f"{value}\n")
    assert inventory_scan_probe.accelerators(tmp_path) == ["1002:74a1", "1002:740f", "1da3:1020"]


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


#: NVLinks of boards with fewer of them, or of another name, than the model that they are made from.
LINKS: dict[str, tuple[int, int] | None] = {
    "NVIDIA A800-SXM4-40GB": (8, 200), "NVIDIA A800-SXM4-80GB": (8, 200), "NVIDIA H800": (8, 200),
    "NVIDIA H20": (18, 450), "NVIDIA A100-SXM4-80GB": (12, 300), "NVIDIA H200": (18, 450),
    "NVIDIA A800 80GB PCIe": None, "NVIDIA H800 PCIe": None, "NVIDIA H20-3e": None, "NVIDIA H200 NVL": None,
}  # fmt: skip


@pytest.mark.parametrize("name", LINKS)
def test_nvlinks_and_their_rate_are_of_their_model_alone(name: str) -> None:
    row = nvlinks(name)
    rates = [rate for pattern, rate, _ in NVLINK_GB_S if pattern.search(name)]
    wanted = LINKS[name]
    assert (row and row.links, rates) == ((wanted[0], [wanted[1]]) if wanted else (None, []))
    assert row is None or row.registered == name.startswith("NVIDIA H")


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
