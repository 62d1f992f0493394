"""The records of repository indices are readable, name their sources, and cover what the lab stands in for."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support import package_indices
from toolkit.lab.fake_packages import load_fake_packages

RECORDED = {"ubuntu2604": "ubuntu2404"}
FILES = sorted(package_indices.FOLDER.glob("*.txt"))


def test_there_are_records():
    assert {"docker-debian12", "docker-ubuntu2404", "docker-el9", "doca-ubuntu2404"} <= {p.stem for p in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_line_is_of_the_form_and_names_its_source(path: Path):
    assert package_indices.read_index(path)


@pytest.mark.parametrize(
    "line", ["docker-ce", "docker-ce 1", "docker-ce 1  # ?", "docker-ce 1 2  # a source", "a  b # x"]
)
def test_a_line_of_another_form_is_refused_with_its_place(tmp_path: Path, line: str):
    (tmp_path / "x.txt").write_text(f"# head\n\ngood 1.0  # public source\n{line}\n")
    with pytest.raises(ValueError, match=r"x\.txt:4"):
        package_indices.read_index(tmp_path / "x.txt")


def form(name: str) -> str:
    """A name whatever the branch or release in it: indices record one of a row."""
    return re.sub(r"\d+(\.\d+)*", "N", name)


def test_every_stand_in_has_the_name_of_a_recorded_package():
    """A name that only the lab has would make a role pass here and fail on a customer's machine. No index of Ubuntu
    26.04 is recorded: its names are held against those of 24.04."""
    strange = []
    for repo in load_fake_packages():
        for system in {s for p in repo.packages for s in p.os}:
            recorded = "distribution" if system.startswith(repo.repo) else repo.repo
            known = {form(name) for name in package_indices.index(recorded, RECORDED.get(system, system))}
            # Planted ones, which no vendor has, are of a version 999: a driver that would bring another kernel.
            names = {p.name for p in repo.of(system) if "999" not in p.version}
            strange += [f"{repo.repo}-{system}: {name}" for name in sorted(names) if form(name) not in known]
    assert strange == []


def test_a_name_that_is_not_recorded_is_told():
    assert package_indices.unrecorded("docker", "debian12", ["docker-ce", "docker-ce-clii"]) == ["docker-ce-clii"]
