"""The programs of examples/ as a user runs them, natively and by the engine: they train, and to the same losses."""

from __future__ import annotations

import ast
import signal
import sys
from pathlib import Path

import pytest

from tests.support.torch_engine import Ran, Server, run, same_bits, start
from tests.support.torch_env import ROOT

EXAMPLES = ROOT / "examples"
SHORT = {
    "resnet.py": ("--depth", "26", "--size", "32", "--batch", "4", "--steps", "4"),
    "gpt.py": ("--width", "64", "--layers", "2", "--steps", "8", "--write", "8"),
    "resume.py": ("--epochs", "1"),
    "amp.py": ("--steps", "6"),
}
"""Each program in a form that takes seconds."""
OTHERS = ("keras_images.py",)
"""Of another framework: tests/integration/test_lease_tensorflow.py runs it."""
KNOWN = {"torch", "numpy"}


def test_each_example_has_its_short_form_and_its_row() -> None:
    assert sorted([*SHORT, *OTHERS]) == sorted(path.name for path in EXAMPLES.glob("*.py"))
    page = (EXAMPLES / "README.md").read_text()
    assert [name for name in (*SHORT, *OTHERS) if f"[{name}]({name})" not in page] == []


@pytest.mark.parametrize("name", SHORT)
def test_nothing_in_it_is_ours(name: str) -> None:
    """PyTorch and the standard library alone."""
    tree = ast.parse((EXAMPLES / name).read_text())
    imports = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imports += [node.module or "." for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {word.split(".")[0] for word in imports} <= {*sys.stdlib_module_names, *KNOWN}


@pytest.mark.parametrize("name", SHORT)
def test_it_trains_and_its_two_figures_are_one(name: str, tmp_path: Path) -> None:
    done = run(EXAMPLES / name, "native", None, *SHORT[name], cwd=tmp_path)
    assert done.out.startswith("device cpu")
    assert len(done.losses) >= 4
    for line in done.losses:
        bits, decimal = line.split()[:2]
        assert f"{float.fromhex(bits):.6f}" == decimal


@pytest.mark.parametrize("name", [name for name in SHORT if name != "amp.py"])
def test_by_the_engine_the_losses_have_the_bits_of_native(name: str, torch_server: Server) -> None:
    ran = same_bits(EXAMPLES / name, torch_server, *SHORT[name])
    assert ran["native"].out.splitlines()[-1] == ran["remote"].out.splitlines()[-1] or name == "resnet.py"


def test_mixed_precision_by_the_engine_is_of_a_gpu(torch_server: Server, tmp_path: Path) -> None:
    """In float16, scaled; its losses are native's but for the digits that the two kinds of half differ in."""
    native = run(EXAMPLES / "amp.py", "native", None, *SHORT["amp.py"], cwd=tmp_path)
    remote = run(EXAMPLES / "amp.py", "remote", torch_server, *SHORT["amp.py"], cwd=tmp_path)
    assert all(" scale 65536 " in line for line in remote.losses)
    both = [[float(line.split()[1]) for line in one.losses] for one in (native, remote)]
    assert both[1] == pytest.approx(both[0], rel=0.01)


def interrupted(folder: Path, *words: str) -> Ran:
    """The training, ended by SIGTERM once it has read a loss."""
    process = start(EXAMPLES / "resume.py", "native", None, *words, cwd=folder)
    assert process.stdout is not None
    head = ""
    while not head.splitlines()[-1:] or not head.splitlines()[-1].startswith("loss "):
        head += process.stdout.readline()
        assert process.poll() is None, head
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    out = head + process.stdout.read()  # communicate() would lose what readline() has read ahead
    err = process.stderr.read()
    losses = [line[5:] for line in out.splitlines() if line.startswith("loss ")]
    return Ran(process.wait(60), out, err, losses)


def test_an_interrupted_training_goes_on_to_the_same_losses(tmp_path: Path) -> None:
    for folder in ("whole", "parts"):
        (tmp_path / folder).mkdir()
    whole = run(EXAMPLES / "resume.py", "native", None, "--epochs", "2", cwd=tmp_path / "whole")
    first = interrupted(tmp_path / "parts", "--epochs", "2")
    assert (first.code, (tmp_path / "parts/work.pt").exists()) == (3, True), first.err
    second = run(EXAMPLES / "resume.py", "native", None, "--epochs", "2", cwd=tmp_path / "parts")
    assert "goes on at epoch" in second.out
    assert first.losses
    assert first.losses + second.losses == whole.losses
