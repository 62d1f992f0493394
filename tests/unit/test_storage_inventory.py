"""The host variable `storage`: refused in one sentence with file and line, and kept as the plan needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.inventory import InventoryError, read_inventory

pytestmark = pytest.mark.systems
HOSTS = """gpu_servers:
  hosts:
    gpu1:
      ansible_host: 10.0.0.1
{one}
    gpu2:
      ansible_host: 10.0.0.2
{two}
"""


def write(folder: Path, one: str, two: str = "") -> Path:
    path = folder / "hosts.yml"

    def variable(rows: str) -> str:
        lines = "\n".join(f"        - {{{row}}}" for row in rows.splitlines())
        return f"      storage:\n{lines}" if rows else ""

    path.write_text(HOSTS.format(one=variable(one), two=variable(two)))
    return path


def test_what_is_declared_reaches_the_node(tmp_path: Path) -> None:
    rows = "name: home, path: /mnt/home/, shared: true, link_gbps: 100\nname: scratch, path: /scratch, read_gb_s: 12"
    nodes = read_inventory(write(tmp_path, rows, "name: home, path: /mnt/home, shared: true, link_gbps: 100")).nodes
    assert [(one.name, one.path, one.shared) for one in nodes[0].storage] == [
        ("home", "/mnt/home", True),
        ("scratch", "/scratch", False),
    ]
    assert (nodes[1].storage[0].link_gbps, nodes[0].storage[1].read_gb_s) == (100, 12)


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("name: home, path: mnt/home", 6, "storage.0.path: 'mnt/home' is no absolute path without .."),
        ("name: home, path: /mnt/../etc", 6, "is no absolute path without .."),
        ("name: home, path: '/mnt/a:/etc'", 6, "that fio takes for its own; give the folder another name"),
        ('name: home, path: "/mnt/a\\u001b[31m"', 6, "storage.0.path: has a character that cannot be seen"),
        ("name: home, path: /", 6, "is the root of the system; name a folder of the storage"),
        ("name: home, path: /dev/nvme0n1", 6, "is a folder of the system, in which nothing is written"),
        ("name: home, pth: /mnt/home", 6, "storage.0.pth: unknown key; did you mean path?"),
        ("name: home", 6, "storage.0.path: is missing; add it"),
        ("name: Home dir, path: /mnt/home", 6, "storage.0.name"),
        ("name: home, path: /a\nname: home, path: /b", 7, "home is there twice"),
        ("name: home, path: /a\nname: b, path: /a", 7, "/a is that of home; measure it once"),
        ("name: home, path: /a, read_gb_s: -1", 6, "storage.0.read_gb_s"),
        ("name: home, path: /a, read_gb_s: many", 6, "storage.0.read_gb_s"),
        ("name: home, path: /a, all_read_gb_s: 4", 6, "all_read_gb_s is of storage that nodes share"),
        (
            "name: home, path: /a, read_gb_s: 6, link_gbps: 10",
            6,
            "read_gb_s 6 is more than link_gbps 10 can carry",
        ),
        ("name: home, path: /a, size_gib: 0", 6, "storage.0.size_gib"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(tmp_path: Path, rows: str, line: int, words: str) -> None:
    path = write(tmp_path, rows)
    with pytest.raises(InventoryError) as refusal:
        read_inventory(path)
    said = str(refusal.value)
    assert said.startswith(f"{path}:{line}: gpu1: storage"), said
    assert words in said
    assert "\n" not in said


def test_hosts_that_say_otherwise_of_one_storage_are_named(tmp_path: Path) -> None:
    path = write(tmp_path, "name: home, path: /a, shared: true", "name: home, path: /a")
    with pytest.raises(InventoryError, match=r"gpu2: storage\.0\.shared: home is shared on gpu1, and not on the other"):
        read_inventory(path)
    path = write(tmp_path, "name: home, path: /a, shared: true, link_gbps: 25", "name: home, path: /a, shared: true")
    with pytest.raises(InventoryError, match="home is declared otherwise than on gpu1; set it once, in group_vars"):
        read_inventory(path)
