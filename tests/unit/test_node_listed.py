"""A host's lines leave an inventory, and nothing else of the file does."""

import difflib
import os
from pathlib import Path

import pytest

from toolkit.errors import UsageFault
from toolkit.node.listed import listing

TEXT = """---
# The site.
all:
  vars: {a: 1}
  children:
    heads:
      hosts:
        head: {ansible_host: 10.0.0.1}
    gpu_servers:
      vars:
        b: 2
      hosts:
        gpu1:
          # bought in May
          ansible_host: 10.0.0.2
          fabric_ports:
            - {interface: fab0, address: 10.1.0.2/24}
        # the noisy one
        gpu2:
        gpu3:
          note: |
            two
            lines

    clients:
      hosts:
        client1:
          ansible_host: 10.0.0.5   # desk
"""


def _gone(path: Path, host: str) -> list[str]:
    found = listing(path, host)
    diff = difflib.ndiff(TEXT.splitlines(), found.without.splitlines())
    return [line for line in diff if line[0] in "+-"]


@pytest.fixture
def hosts(tmp_path: Path) -> Path:
    path = tmp_path / "hosts.yml"
    path.write_text(TEXT)
    return path


def test_a_host_goes_with_its_own_lines_and_the_next_one_keeps_its_remark(hosts: Path):
    assert _gone(hosts, "gpu1") == [
        "-         gpu1:",
        "-           # bought in May",
        "-           ansible_host: 10.0.0.2",
        "-           fabric_ports:",
        "-             - {interface: fab0, address: 10.1.0.2/24}",
    ]
    assert _gone(hosts, "gpu2") == ["-         gpu2:"]
    assert _gone(hosts, "gpu3") == [
        "-         gpu3:",
        "-           note: |",
        "-             two",
        "-             lines",
    ]


def test_a_group_that_loses_its_last_host_is_empty_and_not_broken(hosts: Path):
    gone = _gone(hosts, "client1")
    assert "+       hosts: {}" in gone
    assert not any("gpu" in line for line in gone)


def test_it_is_written_whole_with_mode_and_time(hosts: Path):
    hosts.chmod(0o640)
    os.utime(hosts, (1000, 1000))
    listing(hosts.parent, "gpu1").take_out()
    assert "gpu1" not in hosts.read_text()
    assert (hosts.stat().st_mode & 0o777, hosts.stat().st_mtime) == (0o640, 1000)
    assert list(hosts.parent.iterdir()) == [hosts]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("all:\n  children:\n    gpu_servers:\n      hosts:\n        gpu[1:4]:\n", "no file there lists gpu1"),
        ("all: {children: {gpu_servers: {hosts: {gpu1: {}, gpu2: {}}}}}\n", "among others on one line"),
        ("[gpu_servers]\ngpu1\n", "no file there lists gpu1"),
        ("", "no file there lists gpu1"),
    ],
)
def test_what_no_line_of_its_own_lists_is_refused_and_left(tmp_path: Path, text: str, words: str):
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    with pytest.raises(UsageFault, match=words):
        listing(tmp_path, "gpu1")
    assert path.read_text() == text


def test_a_host_in_two_files_is_refused(hosts: Path):
    (hosts.parent / "more.yml").write_text("all:\n  hosts:\n    gpu1:\n")
    with pytest.raises(UsageFault, match="is in several files"):
        listing(hosts.parent, "gpu1")


def test_a_host_in_several_groups_of_one_file_goes_from_all(tmp_path: Path):
    path = tmp_path / "hosts.yml"
    path.write_text(
        "all:\n  children:\n    a:\n      hosts:\n        gpu1:\n        gpu2:\n    b:\n      hosts:\n        gpu1:\n"
    )
    assert "gpu1" not in listing(path, "gpu1").without
    assert "hosts: {}" in listing(path, "gpu1").without
