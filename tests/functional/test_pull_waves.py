"""Many nodes that pull one image: so many at the same time as the role allows."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.functional.test_horovod_role import PULL, ROOT, ansible

pytestmark = pytest.mark.computes

#: Counts the pulls that run beside it.
DOCKER = """#!/bin/sh
[ "$1" = pull ] || {{ cat > /dev/null; exit 0; }}
mkdir {folder}/$$; ls {folder} | wc -l >> {log}; sleep 1; rmdir {folder}/$$
"""


@pytest.mark.parametrize("pulls", [1, 2])
def test_pulls_of_many_nodes_go_in_waves(tmp_path: Path, pulls: int) -> None:
    log, folder, play = tmp_path / "log", tmp_path / "running", tmp_path / "play.yml"
    folder.mkdir()
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(DOCKER.format(folder=folder, log=log))
    docker.chmod(0o755)
    play.write_text(PULL.format(tasks=ROOT / "roles/horovod/tasks/pull.yml"))
    words = ["-i", "n1,n2,n3,n4,", "-c", "local", "-e", f"ansible_python_interpreter={sys.executable}"]
    ran = ansible(
        "ansible-playbook", *words, "-e", f"horovod_pulls={pulls}", str(play),
        PATH=f"{docker.parent}:{os.environ['PATH']}",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
    beside = [int(line) for line in log.read_text().splitlines()]
    assert len(beside) == 4
    assert max(beside) == pulls


def test_each_pull_of_the_role_has_this_limit() -> None:
    text = "".join((ROOT / f"roles/horovod/tasks/{name}.yml").read_text() for name in ("image", "pull"))
    pulls = [line for line in text.splitlines() if "argv: [docker, pull," in line]
    assert len(pulls) == text.count("throttle: ") == 2
    assert yaml.safe_load((ROOT / "roles/horovod/defaults/main.yml").read_text())["horovod_pulls"] == 20
