"""What a program needs, told by its text before it runs: PyTorch, the driver API, or more than an engine gives."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.lease_host import FakeHost
from toolkit.lease import LeaseError
from toolkit.lease.before import program_needs
from toolkit.lease.before.program_needs import PythonHas, ask_python, needs_of
from toolkit.lease.before.program_words import program_of
from toolkit.lease.client import placement
from toolkit.lease.client.run_request import RunRequest
from toolkit.lease.engines import BESIDE
from toolkit.lease.lease_request import LeaseWish


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a user's, without variables of his."""
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    return folder


def written(files: dict[str, str]) -> None:
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text)
        if text.startswith("#!"):
            Path(name).chmod(0o755)


def wheel(site: Path, name: str, version: str, *needs: str) -> None:
    """A package as pip leaves it."""
    info = site / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    (info / "top_level.txt").write_text(name + "\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    (site / name).mkdir()
    (site / name / "__init__.py").write_text("raise SystemExit('nothing of it may be imported to find that out')\n")


@pytest.mark.parametrize(
    ("text", "kind", "why"),
    [
        ("import torch\n", "torch", "train.py:1 imports torch"),
        ("import os\nfrom torch import nn\n", "torch", "train.py:2 imports torch"),
        ("import torch.nn.functional as F\n", "torch", "train.py:1 imports torch"),
        ("def f():\n    import torch\n", "torch", "train.py:2 imports torch"),
        ("try:\n    import torch\nexcept ImportError:\n    torch = None\n", "torch", "train.py:2 imports torch"),
        ("import importlib\nimportlib.import_module('torch')\n", "torch", "train.py:2 imports torch"),
        ("t = __import__('torch')\n", "torch", "train.py:1 imports torch"),
        ("from transformers import Trainer\n", "torch", "train.py:1 imports transformers, which works by PyTorch"),
        ("import torchvision\n", "torch", "imports torchvision, which works by PyTorch"),
        ("print 'python 2'\nimport torch\n", "torch", "train.py:2 imports torch"),
        ("import torch\nimport re\nre.compile('x')\n", "torch", "train.py:1 imports torch"),
        ("import torch\nm = torch.compile(m, backend='eager')\n", "torch", "train.py:1 imports torch"),
        ("import torch\nm = torch.compile(m, disable=True)\n", "torch", "train.py:1 imports torch"),
        ("import torch\ntry:\n    import xformers\nexcept ImportError:\n    pass\n", "torch", "imports torch"),
        (
            "import torch\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import jax\n",
            "torch",
            "imports torch",
        ),
        ("import torch\nm = torch.compile(m)\n", "torch", "train.py:1 imports torch"),
        ("import torch as t\n@t.compile\ndef f(): ...\n", "torch", "train.py:1 imports torch"),
        ("from torch import compile as c\nc(f, backend='inductor')\n", "torch", "train.py:1 imports torch"),
        ("import torch\n@torch.compile(mode='max-autotune')\ndef f(): ...\n", "torch", "train.py:1 imports torch"),
        ("import torch as t\nt.compile(f, backend='tvm')\n", "runtime", "train.py:2 calls torch.compile"),
        ("import torch\n@torch.compile(backend=B)\ndef f(): ...\n", "runtime", "train.py:2 calls torch.compile"),
        ("from torch.utils.cpp_extension import load\n", "runtime", "cpp_extension, which builds CUDA code of its own"),
        ("from torch.utils import cpp_extension\n", "runtime", "cpp_extension, which builds CUDA code of its own"),
        ("import torch\ng = torch.cuda.CUDAGraph()\n", "runtime", "train.py:2 uses torch.cuda.CUDAGraph"),
        ("import torch\nimport triton.language as tl\n", "runtime", "train.py:2 imports triton"),
        ("import torch, numba.cuda\n", "runtime", "imports torch, and train.py:1 imports numba.cuda"),
        *(
            (f"import {name}\n", "runtime", f"train.py:1 imports {name}")
            for name in ("jax", "cupy", "vllm", "xformers", "bitsandbytes", "deepspeed", "triton")
        ),
        ("from numba import cuda\n", "driver-api", "train.py:1 uses numba.cuda"),
        ("import numba\n@numba.cuda.jit\ndef f(): ...\n", "driver-api", "train.py:2 uses numba.cuda"),
        ("import pycuda.driver\n", "driver-api", "train.py:1 imports pycuda.driver"),
        ("import ctypes\nctypes.CDLL('libcuda.so.1')\n", "driver-api", "train.py:2 loads the CUDA driver's library"),
        ("import numba\n", "unknown", ""),
        ("print('torch')\n# import torch\n", "unknown", ""),
        ("import torchy\n", "unknown", ""),
        ("", "unknown", ""),
    ],
)
def test_the_text_of_a_program_says_what_it_needs(text: str, kind: str, why: str) -> None:
    written({"train.py": text})
    found = needs_of([sys.executable, "train.py", "--lr", "0.1"])
    assert (found.kind, why in found.why) == (kind, True), found
    assert found.python == sys.executable


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["train.py"], "model/net.py:1 imports torch"),
        (["-m", "job"], "model/net.py:1 imports torch"),
        (["-m", "package.job"], "package/deep.py:1 imports torch"),
        (["-um", "package"], "package/deep.py:1 imports torch"),
        (["-X", "dev", "-W", "ignore", "-u", "train.py"], "model/net.py:1 imports torch"),
        (["-c", "import model.net"], "model/net.py:1 imports torch"),
        (["-c", "import torch; print(torch.cuda.is_available())"], "-c:1 imports torch"),
        (["-m", "torch.utils.collect_env"], "imports torch"),
        (["-m", "torch.distributed.run", "--nproc-per-node", "2", "plain.py"], "its launcher imports torch"),
        (["folder"], "__main__.py:1 imports torch"),
    ],
)
def test_files_beside_the_program_and_all_ways_to_name_it_are_followed(words: list[str], why: str) -> None:
    written(
        {
            "train.py": "from model import net\n",
            "plain.py": "",
            "job.py": "import model.net\n",
            "model/__init__.py": "",
            "model/net.py": "import torch\n",
            "package/__init__.py": "",
            "package/__main__.py": "from . import job\n",
            "package/job.py": "from .deep import x\n",
            "package/deep.py": "import torch\n",
            "folder/__main__.py": "import torch\n",
        }
    )
    found = needs_of([sys.executable, *words])
    assert (found.kind, why in found.why) == ("torch", True), found


def test_a_module_of_a_local_package_that_nobody_imports_is_not_looked_at() -> None:
    written({"train.py": "import tools\n", "tools/__init__.py": "", "tools/other.py": "import torch\n"})
    assert needs_of([sys.executable, "train.py"]).kind == "unknown"
    written({"a.py": "import b\n", "b.py": "import a\n"})
    assert needs_of([sys.executable, "a.py"]).kind == "unknown", "imports in a circle end"


PY = sys.executable


@pytest.mark.parametrize(
    "argv",
    [
        ["env", "-u", "X", "A=1", PY, "train.py"],
        ["A=1", PY, "train.py"],
        ["nice", "-n", "5", "nohup", PY, "-u", "train.py"],
        ["timeout", "-k", "5", "60", PY, "train.py"],
        ["taskset", "0x3", PY, "train.py"],
        ["numactl", "--membind=0", PY, "train.py"],
        ["uv", "run", "--with", "x", "python", "train.py"],
        ["uv", "run", "train.py"],
        ["conda", "run", "-n", "env", "python", "train.py"],
        ["bash", "job.sh"],
        ["bash", "-c", f"cd . && exec {PY} train.py"],
        ["./job.sh"],
        ["./tool"],
        ["./long"],
        ["./with-env"],
        ["torchrun", "--nproc-per-node=2", "train.py"],
        ["accelerate", "launch", "train.py"],
    ],
)
def test_wrappers_launchers_shells_and_shebangs_lead_to_the_program(argv: list[str]) -> None:
    written(
        {
            "train.py": "import torch\n",
            "job.sh": f"#!/usr/bin/env bash\n# python x.py\nA=1\nif true; then\n  nice {PY} \\\n train.py\nfi\n",
            "tool": f"#!{PY}\nimport torch\n",
            "long": f"#!/bin/sh\n'''exec' {PY} \"$0\" \"$@\"\n' '''\nimport torch\n",
            "with-env": f"#!/usr/bin/env -S {PY} -u\nimport torch\n",
        }
    )
    assert needs_of(argv).torch, needs_of(argv)


@pytest.mark.parametrize(
    "argv", [[PY], [PY, "-"], ["ls", "-l"], ["nowhere"], ["bash"], ["env"], [PY, "gone.py"], [PY, "-c"]]
)
def test_of_what_cannot_be_read_nothing_is_said(argv: list[str]) -> None:
    assert needs_of(argv).kind == "unknown"


def test_a_tool_that_runs_files_of_its_arguments_needs_what_they_need() -> None:
    written({"tool": f"#!{PY}\n", "test_x.py": "import torch\n"})
    assert needs_of(["./tool", "-q", "test_x.py::test_y"]).kind == "torch"
    assert needs_of([PY, "-m", "json", "test_x.py"]).kind == "torch"


def test_a_compiled_program_says_it_by_the_libraries_that_it_names(tmp_path: Path) -> None:
    marks = {"driver-api": b"libcuda.so.1", "runtime": b"libcudart.so.13", "unknown": b""}
    for name, mark in marks.items():
        path = tmp_path / name
        path.write_bytes(b"\x7fELF" + bytes(64) + mark + b"\0")
        path.chmod(0o755)
        assert needs_of([str(path)]).kind == name


def test_a_python_is_asked_for_its_pytorch_without_an_import_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site-packages"
    monkeypatch.setenv("PYTHONPATH", str(site))
    assert ask_python(sys.executable) == PythonHas()
    wheel(site, "torch", "2.13.0+cpu")
    wheel(site, "mine", "1.0", "numpy", "torch>=2; python_version >= '3'")
    wheel(site, "other", "1.0", 'torch; extra == "gpu"', "torch-like")
    assert ask_python(sys.executable, ["mine", "other"]) == PythonHas("2.13.0+cpu", ("mine",))
    Path("train.py").write_text("import other\nimport mine\n")
    assert needs_of([sys.executable, "train.py"]).why == "train.py:2 imports mine, which needs PyTorch"
    shutil.rmtree(site / "torch-2.13.0+cpu.dist-info")
    (site / "torch/version.py").write_text("__version__ = '2.12.1a0+git1234'\n")
    assert ask_python(sys.executable).torch == "2.12.1a0+git1234", "built from source"
    Path("json.py").write_text("raise SystemExit(1)\n")
    assert ask_python(sys.executable).known, "nothing of the user's folder is imported"
    assert not ask_python("/bin/true").known
    assert not ask_python("/nowhere").known


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    (tmp_path / "current").mkdir()
    return FakeHost(folder=tmp_path / "current")


def engines(host: FakeHost, first: str, torch: bool = True, minors: tuple[str, ...] = ("2.13",)) -> None:
    (host.engine_dir / "engine.json").write_text(json.dumps({"engine": first, "release": "1"}))
    if torch:
        folder = host.engine_dir.parent / BESIDE / "torch/current"
        folder.mkdir(parents=True)
        (folder / "engine.json").write_text(json.dumps({"engine": "torch", "release": "1", "torch": minors}))


TORCH, JAX, DRIVER, PLAIN = "import torch\n", "import jax\n", "from numba import cuda\n", "print(1)\n"


def chosen(
    host: FakeHost, text: str, monkeypatch: pytest.MonkeyPatch, has: str = "2.13.0+cpu", **options: object
) -> placement.Placement:
    Path("train.py").write_text(text)
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas(has))
    monkeypatch.setattr(program_needs, "ask_python", lambda _python, _names=(): PythonHas(has))
    monkeypatch.setattr(placement, "absent_here", lambda _imports, _python: [])
    wish = LeaseWish(engine=str(options.pop("engine", "")))
    return placement.place(host, RunRequest((sys.executable, "train.py"), wish, **options))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "torch", "text", "engine", "told"),
    [
        ("reference", True, TORCH, "torch", "runs here, its GPUs by the engine torch: train.py:1 imports torch"),
        ("reference", True, DRIVER, "reference", "runs here, its GPUs by the engine reference: train.py:1 uses numba"),
        (
            "reference",
            True,
            JAX,
            "",
            "runs on the server itself: train.py:1 imports jax, another framework, for which no",
        ),
        (
            "reference",
            True,
            PLAIN,
            "",
            "runs on the server itself: nothing shows that it imports PyTorch (if it does: --engine torch), and the "
            "engine here (reference) runs kernels by the driver API alone",
        ),
        (
            "reference",
            False,
            TORCH,
            "",
            "runs on the server itself: train.py:1 imports torch, for which the engine ",
        ),
        ("lupine", True, TORCH, "torch", "its GPUs by the engine torch: train.py:1 imports torch"),
        ("lupine", True, JAX, "lupine", "its GPUs by the engine lupine: train.py:1 imports jax"),
        ("lupine", True, PLAIN, "lupine", "its GPUs by the engine lupine"),
        ("lupine", False, TORCH, "lupine", "its GPUs by the engine lupine: train.py:1 imports torch"),
        ("torch", False, TORCH, "torch", "its GPUs by the engine torch: train.py:1 imports torch"),
        ("torch", False, PLAIN, "", "(torch) runs programs of PyTorch alone, which"),
    ],
)
def test_a_program_finds_the_engine_that_it_needs(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, first: str, torch: bool, text: str, engine: str, told: str
) -> None:
    engines(host, first, torch)
    found = chosen(host, text, monkeypatch)
    assert (found.engine, found.where) == (engine, "client" if engine else "server")
    assert told in found.told
    assert "\n" not in found.told


def test_an_engine_that_is_named_decides_and_is_not_given_a_program_that_would_find_no_gpu(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(host, "reference")
    assert chosen(host, PLAIN, monkeypatch, engine="reference").engine == "reference", "by hand"
    assert chosen(host, PLAIN, monkeypatch, engine="torch").engine == "torch"
    assert chosen(host, "import torch\ntorch.compile(f)\n", monkeypatch, engine="torch").engine == "torch"
    for engine, text, words in (
        (
            "reference",
            TORCH,
            r"train.py:1 imports torch, for which the engine here \(reference\) is not enough; -",
        ),
        ("torch", DRIVER, r"uses numba.cuda, which speaks the CUDA driver API, for which the engine here \(torch\)"),
        ("torch", JAX, r"imports jax, another framework, for which the engine here \(torch\) is not enough"),
        ("lupine", TORCH, r"the engine lupine is not installed here \(it has reference and torch\)"),
    ):
        with pytest.raises(LeaseError, match=words):
            chosen(host, text, monkeypatch, engine=engine)
    with pytest.raises(LeaseError, match="--engine is for programs that run here"):
        chosen(host, TORCH, monkeypatch, engine="torch", where="server")


@pytest.mark.parametrize("where", ["auto", "client"])
@pytest.mark.parametrize("engine", ["", "torch"])
def test_no_pytorch_and_one_of_another_release_are_refused_before_the_start(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch, where: str, engine: str
) -> None:
    engines(host, "reference", minors=("2.12", "2.13"))
    assert chosen(host, TORCH, monkeypatch, "2.12.1", where=where, engine=engine).engine == "torch"
    with pytest.raises(LeaseError, match=r"has no PyTorch, .*install torch 2.12.\* or 2.13.\* there .*--where server"):
        chosen(host, TORCH, monkeypatch, "", where=where, engine=engine)
    for version in ("2.11.0", "2.1.0", "2.130.0+cu130", "3.13.0"):
        with pytest.raises(LeaseError, match=rf"has PyTorch {version.replace('+', '.')}, and the engine here is built"):
            chosen(host, TORCH, monkeypatch, version, where=where, engine=engine)


def test_where_another_engine_has_the_runtime_it_takes_a_pytorch_that_the_first_choice_cannot(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(host, "lupine")
    assert chosen(host, TORCH, monkeypatch, "2.9.0").engine == "lupine"


def test_a_lease_that_is_there_is_held_against_the_program(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(host, "reference")
    Path("train.py").write_text(TORCH)
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas("2.13.0"))
    request = RunRequest((sys.executable, "train.py"), lease=42)
    assert placement.place(host, request) == placement.Placement("client")
    placement.refuse_on_lease(host.engine_dir, request, "torch")
    with pytest.raises(LeaseError, match=r"imports torch, for which the engine here \(reference\)"):
        placement.refuse_on_lease(host.engine_dir, request, "reference")
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas())
    with pytest.raises(LeaseError, match="has no PyTorch"):
        placement.refuse_on_lease(host.engine_dir, request, "torch")
    with pytest.raises(LeaseError, match="runs on what the lease has; omit --engine"):
        RunRequest.checked(program=("a",), lease=42, engine="torch", **dict.fromkeys(
            ("part", "memory_mib", "servers", "seconds", "up_to")), count=1, apart=False, gpu_class="")  # fmt: skip


def test_of_the_python_of_an_image_nothing_is_known(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(host, "reference")
    assert chosen(host, TORCH, monkeypatch, "", image="x").engine == "torch"


def test_a_program_that_states_what_it_needs_is_not_looked_at(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    engines(host, "reference")
    assert chosen(host, TORCH, monkeypatch, driver_api=True).engine == "reference"
    assert program_of([]) is None


def test_a_prompt_and_a_notebook_are_told_how_they_get_gpus_here(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines(host, "reference")
    monkeypatch.setattr(placement, "ask_python", lambda _python: PythonHas("2.13.0"))
    with pytest.raises(LeaseError, match=r"has no nowhere_at_all \(-m nowhere_at_all\); install it there"):
        placement.place(host, RunRequest((sys.executable, "-m", "nowhere_at_all"), LeaseWish(engine="torch")))
    monkeypatch.setattr(placement, "absent_here", lambda _imports, _python: [])
    for words in ((sys.executable, "-i"), (sys.executable, "-m", "IPython"), ("cat",)):
        found = placement.place(host, RunRequest(words))
        assert (found.where, "(if it does: --engine torch)" in found.told) == ("server", True)
        by_hand = RunRequest(words, LeaseWish(engine="torch"))
        assert placement.place(host, by_hand).engine == "torch"


def test_a_program_that_only_the_server_may_have_is_called_so(host: FakeHost) -> None:
    engines(host, "reference")
    assert placement.place(host, RunRequest(("no-such-program",))).told == (
        "no-such-program runs on the server itself: this machine has no such program"
    )
    image = placement.place(host, RunRequest(("no-such-program",), image="train:1"))
    assert "no such program" not in image.told, "the image has it"


@pytest.mark.parametrize(
    "words",
    [
        ("python3", "nosuch.py"),
        ("env", "A=1", "python3", "-u", "nosuch.py", "--steps", "3"),
        ("nice", "python3", "d/x.py"),
        ("torchrun", "nosuch.py"),
        ("env", "A=1", "torchrun", "--standalone", "--nproc-per-node", "2", "d/x.py", "--steps", "3"),
        ("python3", "-u", "-m", "torch.distributed.run", "--nnodes=1", "nosuch.py"),
        ("accelerate", "launch", "nosuch.py"),
    ],
)
def test_a_file_that_is_not_there_is_refused_before_anything_is_leased(words: tuple[str, ...]) -> None:
    with pytest.raises(LeaseError, match=r"(nosuch|d/x)\.py: no such file in /"):
        placement.refuse_missing(RunRequest(words))
    for elsewhere in ({"folder": "/srv"}, {"sync": "."}, {"image": "train:1"}):
        placement.refuse_missing(RunRequest(words, **elsewhere))


def test_what_may_be_there_is_not_refused() -> None:
    Path("train.py").write_text(PLAIN)
    Path("folder").mkdir()
    Path("folder/__main__.py").write_text(PLAIN)
    for words in (
        ("env", "-C", "folder", "python3", "only-there.py"),
        ("python3", "train.py"), ("python3", "/srv/on-the-server-alone.py"), ("python3", "-m", "mine"), ("python3",),
        ("python3", "-c", "1"), ("nosuch",), ("torchrun", "train.py"), ("torchrun", "-m", "mine"), ("torchrun",),
        ("python3", "-m", "torch.distributed.run", "train.py"), ("torchrun", "/srv/on-the-server-alone.py"),
        ("sh", "-c", "python3 made-later.py"), ("python3", "folder"),
    ):  # fmt: skip
        placement.refuse_missing(RunRequest(words))
