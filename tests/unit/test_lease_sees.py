"""How many GPUs PyTorch or TensorFlow sees is in the lease's line; none is an error before anything is leased."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.lease_forms import endpoint, leased_gpu
from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError
from toolkit.lease.before import sees
from toolkit.lease.before.program_needs import Needs, PythonHas
from toolkit.lease.client import placement, running
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.lease_request import LeaseWish
from toolkit.lease.notebook import here
from toolkit.lease.notebook.request import NotebookRequest

TORCH, TENSORFLOW = "PyTorch", "TensorFlow"
ONE, TWO = endpoint(devices=(leased_gpu(),)), endpoint("gpu2", devices=(leased_gpu(0), leased_gpu(1)))


@pytest.mark.parametrize(
    ("listed", "count", "seen"),
    [
        (None, 2, 2), ("", 2, 0), ("0", 2, 1), ("1,0", 2, 2), ("1", 1, 0), ("-1", 2, 0), ("NoDevFiles", 2, 0),
        ("0,7,1", 2, 1), ("0,0", 2, 0), (" 1 , 0", 2, 2), ("GPU-1", 2, 2),
    ],
)  # fmt: skip
def test_a_users_own_choice_of_gpus_is_read_as_cuda_reads_it(listed: str | None, count: int, seen: int) -> None:
    assert sees.visible(count, {} if listed is None else {sees.VISIBLE: listed}) == seen


def test_what_is_seen_is_in_words() -> None:
    assert sees.words_here(TORCH, [ONE], {}) == "PyTorch sees 1 GPU"
    assert sees.words_here(TORCH, [ONE, TWO], {}) == "PyTorch sees 3 GPUs"
    assert sees.words_here(TORCH, [ONE, TWO], {sees.VISIBLE: "2"}) == "PyTorch sees 1 GPU"
    assert sees.words_here(TENSORFLOW, [TWO], {sees.VISIBLE: ""}) == "TensorFlow sees 2 GPUs", (
        "its engine reads no such"
    )
    assert sees.words_here("", [ONE], {}) == sees.words_there("", [ONE]) == ""
    assert sees.words_there(TORCH, [TWO]) == "PyTorch sees 2 GPUs"
    assert sees.words_there(TORCH, [ONE, ONE]) == "PyTorch sees 1 GPU on each server"
    assert sees.words_there(TORCH, [ONE, TWO]) == "PyTorch sees 1 to 2 GPUs, those of its server"


def test_nothing_is_stated_of_a_python_that_nobody_knows() -> None:
    assert sees.framework(Needs("torch", python="/usr/bin/python3", torch=True)) == TORCH
    assert sees.framework(Needs("tensorflow", python="/usr/bin/python3", tensorflow=True)) == TENSORFLOW
    assert sees.framework(Needs("torch", torch=True)) == sees.framework(Needs("any", python="/usr/bin/python3")) == ""


def test_it_is_in_the_leases_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(running.ask, "obtain", lambda *_: (47, [TWO]))
    said: list[str] = []
    host = FakeHost(folder=tmp_path)
    request = SimpleNamespace()  # of no interest: the lease is there
    for words, end in (("PyTorch sees 2 GPUs", "gpu2:0-1; PyTorch sees 2 GPUs"), ("", "gpu2:0-1")):
        said.clear()
        running.run(host, request, ["x"], said.append, None, lambda *_: 0, lambda _, w=words: w)  # type: ignore[arg-type, misc]
        assert said[0].replace(" (emulated devices: not a GPU's figures)", "") == f"lease 47: {end}"


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeHost:
    """With the engine for PyTorch, and a Python that it knows."""
    made = FakeHost(folder=tmp_path)
    (made.engine_dir / "engine.json").write_text(json.dumps({"engine": "torch", "release": "r1", "torch": ["2.14"]}))
    made.pool_conf.write_text(json.dumps({"servers": {"gpu1": {}}}))
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas("2.14.1"))
    monkeypatch.setattr(placement, "absent_here", lambda *_: [])
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("import torch\n")
    return made


@pytest.mark.parametrize(("listed", "count"), [("", None), ("1", 1), ("-1", 4)])
def test_a_program_that_would_see_no_gpu_is_refused_before_anything_is_leased(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, listed: str, count: int | None
) -> None:
    monkeypatch.setenv(sees.VISIBLE, listed)
    wish = LeaseWish(count=count)
    request = RunRequest(("python3", "train.py"), wish)
    why = f"PyTorch would see no GPU: CUDA_VISIBLE_DEVICES={listed} in your environment leaves none .* --cpu-ok"
    with pytest.raises(LeaseError, match=why):
        placement.place(host, request)
    found = placement.place(host, RunRequest(("python3", "train.py"), wish, cpu_ok=True))
    assert (found.where, found.framework) == ("client", TORCH)
    with pytest.raises(LeaseError, match="PyTorch would see no GPU"):
        here.fit(host, NotebookRequest(wish))
    monkeypatch.delenv(sees.VISIBLE)
    assert placement.place(host, request).framework == TORCH


def test_on_a_lease_that_is_there_none_at_all_is_refused(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sees.VISIBLE, "")
    with pytest.raises(LeaseError, match="PyTorch would see no GPU"):
        placement.refuse_on_lease(host.engine_dir, RunRequest(("python3", "train.py"), lease=41), "torch")
    monkeypatch.setenv(sees.VISIBLE, "3")
    placement.refuse_on_lease(host.engine_dir, RunRequest(("python3", "train.py"), lease=41), "torch")
