"""Handover day in a lab: storage, recovery, a witnessed list, a punch list closed by a second run, two units and their
sum, papers with a last day; and a second look by stock tools."""

from __future__ import annotations

import hashlib
import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from conftest import BIN, NODES, ROOT, Lab, toolkit

pytestmark = [pytest.mark.rest, pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a lab")]
WHO = "A. Example, Integrator"
LAST = "2027-06-30"
STORAGE = "---\nstorage:\n  - {name: home, path: /mnt/lab-shared, shared: true, filesystem: ext4}\n"
RACKS = {"rack1": ("head", "gpu1"), "rack2": ("client1", "gpu2")}
QUIET_S = 300.0


@pytest.fixture
def site(pool: Lab) -> Iterator[Lab]:
    """The lab, whose inventory names a storage and two racks for the time of the test."""
    storage, hosts = pool.inventory / "group_vars/all/storage.yml", pool.inventory / "hosts.yml"
    storage.parent.mkdir(parents=True, exist_ok=True)
    kind = pool.ssh("gpu1", "findmnt --noheadings --output FSTYPE --target /mnt/lab-shared").strip()
    storage.write_text(STORAGE.replace("ext4", kind))
    before = hosts.read_text()
    inventory = yaml.safe_load(before)
    for rack, names in RACKS.items():
        inventory["all"]["children"][rack] = {"hosts": {name: {} for name in names}}
    hosts.write_text(yaml.safe_dump(inventory))
    done = toolkit("deploy", "-i", pool.inventory, timeout_s=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    yield pool
    hosts.write_text(before)
    for path in (storage, pool.inventory / "punch.yml"):
        path.unlink(missing_ok=True)
    for node in ("gpu1", "gpu2"):
        toolkit("lab", "fault", "clear", node, "--name", pool.name)


def measured(lab: Lab, runs: Path, *words: str) -> tuple[int, Path]:
    """A validation: its exit code and its run."""
    done = toolkit("validate", "-i", lab.inventory, "--runs-dir", runs, "--fabric", "tcp10", *words, timeout_s=1800)
    print(done.stdout[-1500:])
    assert done.returncode in (0, 1, 3), done.stderr
    return done.returncode, max(runs.iterdir())


def verdicts(run: Path) -> dict[str, str]:
    """Criterion -> verdict."""
    found = json.loads((run / "verdict.json").read_text())
    return {one["id"]: one["verdict"] for one in found["criteria"]}


def of_each_test(run: Path, id_: str) -> dict[str, str]:
    """Witnessed test -> what a criterion says of it."""
    found = json.loads((run / "verdict.json").read_text())["criteria"]
    (one,) = (each for each in found if each["id"] == id_)
    return {judged["about"]["op"]: judged["verdict"] for judged in one["judgements"]}


def ports(lab: Lab, nodes: tuple[str, ...], state: str) -> None:
    """Fabric links of nodes are taken out, or back."""
    for node in nodes:
        lab.ssh(node, f"ip link set fab0 {state}")


def hands(lab: Lab) -> list[tuple[str, Callable[[], object], Callable[[], object]]]:
    """What a person does at each test: the words that ask for it, and how it is done and undone here."""

    def power(state: str) -> None:
        words = ["set", "gpu1", "dead-node"] if state == "off" else ["clear", "gpu1"]
        done = toolkit("lab", "fault", *words, "--name", lab.name)
        assert done.returncode == 0, done.stderr

    return [
        ("cable", lambda: ports(lab, ("gpu1",), "down"), lambda: ports(lab, ("gpu1",), "up")),
        ("leaf", lambda: ports(lab, NODES, "down"), lambda: ports(lab, NODES, "up")),
        ("button", lambda: power("off"), lambda: power("on")),
        ("power cables", lambda: power("off"), lambda: power("on")),
    ]


def led(lab: Lab, run: Path) -> str:
    """`toolkit handover witness` with a person who does what is asked; all that it said."""
    words = [str(BIN / "toolkit"), "handover", "witness", str(run), "-i", str(lab.inventory)]
    todo = [act for _, do, undo in hands(lab) for act in (do, undo)]
    said, seen = "", 0
    with subprocess.Popen(
        words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        while select.select([process.stdout], [], [], QUIET_S)[0]:
            chunk = os.read(process.stdout.fileno(), 4096).decode("utf-8", "replace")
            if not chunk:
                break
            said += chunk
            asked = said[seen:].rpartition("\n")[2]
            if not asked.endswith((": ", "? ")):
                continue
            seen = len(said)
            if "Press Enter" not in asked:
                answer = WHO if "witness" in asked else "no BMC here" if "hy" in asked else "as expected"
            elif "write skip" in asked and "one power cable" in asked:
                answer = "skip"
            else:
                todo.pop(0)()
                answer = ""
            process.stdin.write(f"{answer}\n".encode())
            process.stdin.flush()
        process.kill() if process.poll() is None and not said else process.wait(timeout=QUIET_S)
    assert process.returncode in (0, 1, 3), said
    assert not todo, said
    return said


def key_of(folder: Path) -> Path:
    """An SSH key of a person."""
    path = folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def test_a_handover_from_the_first_fault_to_its_papers(site: Lab, tmp_path: Path) -> None:
    lab, runs, key = site, tmp_path / "runs", key_of(tmp_path)
    runs.mkdir()

    # a first run finds a fault, which becomes a point
    planted = toolkit("lab", "fault", "set", "--name", lab.name, "gpu2", "few-files")
    assert planted.returncode == 0, planted.stderr
    code, first = measured(lab, runs, "--suite", "preflight", "--suite", "as-built")
    assert code == 1
    done = toolkit("handover", "update", str(first), "--owner", WHO, "-i", lab.inventory, "--runs-dir", runs)
    assert done.returncode == 1, done.stdout + done.stderr
    points = (lab.inventory / "punch.yml").read_text()
    assert "pf.asbuilt" in points
    assert toolkit("lab", "fault", "clear", "gpu2", "--name", lab.name).returncode == 0

    # the second has all of it, and closes the point
    suites = [w for name in ("preflight", "as-built", "storage", "recovery", "witness") for w in ("--suite", name)]
    code, run = measured(lab, runs, *suites, "--reboots", "2")
    said = led(lab, run)
    print(said[-3000:])
    found = verdicts(run)
    for id_ in ("st.seen", "st.flock", "rc.reboot", "rc.dead", "rc.back", "rc.head"):
        assert found[id_] == "pass", (id_, found[id_])
    for id_ in ("wt.seen", "wt.lost", "wt.back"):
        assert of_each_test(run, id_) == {
            "psu-feed": "not-measured",
            **dict.fromkeys(("cable-out", "leaf-off", "node-off", "power-back"), "pass"),
        }, id_
    listed = {one["id"]: one for one in json.loads((run / "verdict.json").read_text())["points"]}
    assert all(one["state"] == "closed" and one["closed_by"] == run.name for one in listed.values()), listed
    done = toolkit("handover", "update", str(run), "--owner", WHO, "-i", lab.inventory, "--runs-dir", runs)
    assert done.returncode == 0, done.stdout + done.stderr  # else the points would keep the units' runs back
    left = "find /mnt/lab-shared -name '.toolkit-storage-*'"
    assert lab.ssh("gpu1", left) == "", "nothing of the measurements is left"

    # papers with a last day, and two units with their sum
    units = [measured(lab, runs, "--unit", name, "--suite", "preflight")[1] for name in RACKS]
    for one in (run, *units):
        done = toolkit("sign", str(one), "--key", key, "--as", WHO, "--until", LAST)
        assert done.returncode == 0, done.stderr
    out = tmp_path / "sum"
    done = toolkit("handover", "sum", *map(str, units), "--key", key, "--as", WHO, "--out", out, "-i", lab.inventory)
    assert done.returncode == 0, done.stdout + done.stderr
    done = toolkit("handover", "check-sum", str(out), *map(str, units), "-i", lab.inventory)
    assert done.returncode in (0, 3), done.stdout + done.stderr
    assert "NOT INTACT" not in done.stdout

    done = toolkit("verify", str(run))
    assert "INTACT" in done.stdout, done.stdout + done.stderr
    assert "NOT INTACT" not in done.stdout
    assert LAST in done.stdout
    second_look(run)


def second_look(run: Path) -> None:
    """By what every Linux has: sums and signature, without this toolkit."""
    for line in (run / "MANIFEST.sha256").read_text().splitlines():
        sha256, name = line.split(maxsplit=1)
        assert hashlib.sha256((run / name.strip()).read_bytes()).hexdigest() == sha256, name
    assert subprocess.run(["sha256sum", "--quiet", "-c", "MANIFEST.sha256"], cwd=run, check=False).returncode == 0
    (signature,) = (run / "signatures").glob("*.sig")
    statement = signature.with_suffix("")
    assert LAST in statement.read_text()
    sign_off = json.loads((run / "verdict.json").read_text())["sign_off"]
    words = ["ssh-keygen", "-Y", "check-novalidate", "-n", f"elastic-ai-{sign_off.lower()}", "-s", str(signature)]
    with statement.open("rb") as text:
        done = subprocess.run(words, stdin=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
