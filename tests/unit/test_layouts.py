"""Servers of the field are recognised by their tree, and what is planted in each is named: on constructed trees."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.site import FACTS
from tests.support.trees import SERVERS, Gpu, Root, Server, Switch, with_gpu, without_link
from tests.unit.test_trees import read
from validation.model.node_facts import NodeFacts
from validation.report import topology_words
from validation.report.server_layouts import Recognised, recognise

ALL = SERVERS
NAMES = {
    "C4130-G": "C4130 configuration G",
    "C4130-K": "C4130 configuration K",
    "C4140-K": "C4140 configuration K",
    "C4140-M": "C4140 configuration M",
    "C4140-B": "C4140 configuration B",
    "C4140-G": "C4140 configuration G",
    "R740": "R740 with three GPUs",
    "R7525": "R7525 with three GPUs",
    "XE8545": "XE8545",
    "XE9680": "XE9680 with H100, H200",
    "XE9680-H200": "XE9680 with H100, H200",
    "XE9712": "XE9712, a tray of GB200 NVL72",
}


def found(server: Server, folder: Path, **said: Any) -> Recognised | None:
    return recognise(NodeFacts.model_validate({**FACTS, **read(server, folder), **said}))


@pytest.mark.parametrize("name", ALL)
def test_each_server_is_recognised_and_differs_in_nothing(name: str, tmp_path: Path) -> None:
    mine = found(ALL[name], tmp_path)
    assert mine is not None
    assert mine.words == NAMES[name]
    assert mine.layout.source


@pytest.mark.parametrize("name", ALL)
def test_a_card_of_eight_lanes_is_named(name: str, tmp_path: Path) -> None:
    planted = with_gpu(ALL[name], ALL[name].gpus - 1, lambda gpu: replace(gpu, lanes=8))
    mine = found(planted, tmp_path)
    assert mine is not None
    assert mine.layout.name == NAMES[name]
    address = [card["address"] for card in read(planted, tmp_path / "again")["pci"] if card["what"] == "gpu"][-1]
    assert mine.differences == (f"GPU {address} has 8 lanes, 16 there",)


#: Which of a server's GPUs is moved; of three in slots the tree looks the same mirrored, so it is one that tells.
MOVED = {"C4130-G": 0, "C4140-M": 0, "C4140-G": 0, "R740": 2, "R7525": 0, "XE8545": 0, "XE9680": 0,
         "XE9680-H200": 0, "XE9712": 0}  # fmt: skip


@pytest.mark.parametrize("name", MOVED)
def test_a_gpu_on_the_other_socket_is_named(name: str, tmp_path: Path) -> None:
    server = ALL[name]
    roots, which = list(server.roots), MOVED[name]
    socket = roots[which].numa // server.per_socket
    other = next(root.numa for root in roots if root.numa // server.per_socket != socket)
    roots[which] = replace(roots[which], numa=other)
    planted = replace(server, roots=tuple(roots))
    mine = found(planted, tmp_path)
    assert mine is not None
    assert mine.layout.server in server.model
    moved = read(planted, tmp_path / "again")["pci"]
    assert any(str(card["address"]) in " ".join(mine.differences) for card in moved if card["what"] == "gpu")
    assert all("at its host ports" in words for words in mine.differences)


@pytest.mark.parametrize("name", [name for name in ALL if name not in MOVED])
def test_one_of_four_gpus_behind_a_switch_on_the_other_socket_is_named(name: str, tmp_path: Path) -> None:
    first, *rest = ALL[name].roots
    assert isinstance(first.below, Switch)
    fewer = replace(first, below=replace(first.below, below=first.below.below[:-1]))
    planted = replace(ALL[name], roots=(fewer, *rest, Root(0xC7, 1, Gpu())))
    mine = found(planted, tmp_path)
    assert mine is not None
    assert mine.layout.server in planted.model
    assert "GPU 0000:c8:00.0" in " ".join(mine.differences)


@pytest.mark.parametrize("name", [name for name, server in ALL.items() if server.nvlinks])
def test_a_missing_nvlink_is_named_with_its_ends(name: str, tmp_path: Path) -> None:
    server = ALL[name]
    said = read(server, tmp_path)
    mine = found(server, tmp_path / "again", nvlink=without_link(said["nvlink"], 0, server.gpus - 1))
    ends = [said["nvlink"][0]["address"], said["nvlink"][-1]["address"]]
    assert mine is not None
    assert mine.layout.name == NAMES[name]
    assert all(end in " ".join(mine.differences) for end in ends), mine.differences
    others = [gpu["address"] for gpu in said["nvlink"][1:-1]]
    assert not any(other in " ".join(mine.differences) for other in others)


def test_a_gpu_that_is_not_there(tmp_path: Path) -> None:
    server = SERVERS["XE8545"]
    mine = found(replace(server, roots=server.roots[1:]), tmp_path)
    assert mine is not None
    assert mine.layout.name == "XE8545"
    assert mine.differences[0] == "3 GPUs, 4 there"


def test_what_is_not_known_is_not_recognised(tmp_path: Path) -> None:
    server = SERVERS["XE8545"]
    assert found(replace(server, model="PowerEdge R760"), tmp_path / "1") is None
    assert found(server, tmp_path / "2", pci=[]) is None
    bare = [{**card, "above": []} for card in read(server, tmp_path / "3")["pci"]]
    assert found(server, tmp_path / "4", pci=bare) is None
    nowhere = [{**card, "numa": None} for card in read(server, tmp_path / "5")["pci"]]
    mine = found(server, tmp_path / "6", pci=nowhere)
    assert mine is not None
    assert mine.differences[0].startswith("the socket of GPU ")


def test_nvlinks_that_nobody_tells_of_are_no_difference(tmp_path: Path) -> None:
    mine = found(SERVERS["XE8545"], tmp_path, nvlink=None, nvlink_unread="no libnvidia-ml.so.1")
    assert mine is not None
    assert mine.differences == ()


@pytest.mark.parametrize(
    ("name", "words", "row"),
    [
        ("C4140-K", "NVLinks of each GPU: 6, 2 between each two.", ("ib0 NODE", "6 up")),
        ("C4140-B", "NVLink between the GPUs: none is up.", ("ib0 NODE", "0 up")),
        ("C4130-K", "NVLinks of each GPU: 4, 1 to 2 between each two.", ("ib0 NODE", "4 up")),
        (
            "XE9680",
            "NVLinks of each GPU to NVSwitches: 18.",
            ("rail0 PIX, rail1 PIX, rail2 NODE, rail3 NODE, rail4 SYS, rail5 SYS, rail6 SYS, rail7 SYS", "18 up"),
        ),
    ],
)
def test_the_drawing_tells_of_layout_links_and_distances(
    name: str, words: str, row: tuple[str, str], tmp_path: Path
) -> None:
    facts = NodeFacts.model_validate({**FACTS, **read(SERVERS[name], tmp_path)})
    assert topology_words.notes(facts) == (f"Laid out as {NAMES[name]}.", words)
    first = next(card for card in facts.pci if card.what == "gpu")
    assert topology_words.of_card(first, facts) == row


def test_a_missing_nvlink_is_told_under_the_drawing(tmp_path: Path) -> None:
    said = read(SERVERS["XE8545"], tmp_path)
    broken = {**said, "nvlink": without_link(said["nvlink"], 0, 3)}
    laid_out, links = topology_words.notes(NodeFacts.model_validate({**FACTS, **broken}))
    first, last = (said["nvlink"][number]["address"] for number in (0, 3))
    assert laid_out == f"Laid out as XE8545, but 3 NVLinks between {first} and {last}, 4 there."
    assert links == f"NVLinks of each GPU: 12, 3 to 4 between each two (GPU {first}: 11, GPU {last}: 11 only)."
