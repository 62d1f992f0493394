"""`toolkit engine build torch` without PyTorch: sources and a PyTorch of a few lines stand in."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from toolkit.commands.engine import engine
from toolkit.engine import torch_build, torch_releases
from toolkit.engine.torch_build import Torch
from toolkit.errors import BuildError

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
SOURCES = {
    "client/one.cc": '#include "shared/both.h"\n#include <ATen/x.h>\nextern "C" int eat_one() { return ONE + X; }\n',
    "client/two.cc": 'extern "C" int eat_two() { return 2; }\n',
    "server/start.cc": '#include "own.h"\nextern "C" int ests_start() { return OWN; }\n',
    "server/own.h": "#define OWN 5\n",
    "server/elastic-ai-torchserver": "#!/usr/bin/env python3\n",
    "server/elastic_ai_torchserver/main.py": "def main() -> None: ...\n",
    "server/cuda_memory.c": "int made(void) { return 1; }\n",
    "server/cuda_runtime.c": "",
    "server/torch-operators.txt": "aten::add\n",
    "shared/both.cc": '#include "both.h"\nint both() { return ONE; }\n',
    "shared/both.h": "#define ONE 1\n",
    "shared/torch_headers.h": "#include <ATen/x.h>\n",
    "python/elastic_ai_torch/__init__.py": "",
    "python/elastic_ai_torch/__pycache__/x.pyc": "",
}


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The engine's folder, and a cache of this test's own."""
    top = tmp_path / "engine"
    for name, text in SOURCES.items():
        path = top / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.setattr(torch_build, "SOURCES", top)
    monkeypatch.setattr(torch_build, "TORCH", top / "torch")
    monkeypatch.setattr(torch_build, "VERBS", ())  # of C too
    monkeypatch.setattr(torch_build, "compile_shown", lambda _folder: [])  # of C, with tests of its own
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return top / "torch"


@pytest.fixture
def torch(tmp_path: Path) -> Torch:
    folder = tmp_path / "torch"
    for name in ("include/ATen/x.h", "include/ATen/core/Tensor.h"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("#define X 0\n")
    (folder / "lib").mkdir()
    for name in ("c10", "torch_cpu"):
        subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", folder / f"lib/lib{name}.so"], check=True)
    return Torch("2.13.0+cpu", "abc", folder, 1)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(torch_build, "progress", lines.append)
    return lines


def test_a_second_build_compiles_what_changed_and_no_more(
    sources: Path, torch: Torch, said: list[str], tmp_path: Path
) -> None:
    def compiled() -> set[str]:
        said.clear()
        torch_build.build_folder(tmp_path / "out", [torch])
        return {line.split()[2] for line in said if " compiled, " in line}

    assert compiled() == {"client/one.cc", "client/two.cc", "server/start.cc", "shared/both.cc"}
    assert compiled() == set()
    (sources / "client/two.cc").write_text('extern "C" int eat_two() { return 3; }\n')
    assert compiled() == {"client/two.cc"}
    (sources / "shared/both.h").write_text("#define ONE 10\n")
    assert compiled() == {"client/one.cc", "shared/both.cc"}, "what includes it, from whichever folder"
    (sources / "server/own.h").write_text("#define OWN 6\n")
    assert compiled() == {"server/start.cc"}
    library = tmp_path / "out/lib/libelastic_ai_torch-2.13.so"
    program = f"import ctypes; l = ctypes.CDLL('{library}', ctypes.RTLD_GLOBAL); print(l.eat_one(), l.eat_two())"
    paths = {"LD_LIBRARY_PATH": str(torch.folder / "lib"), "PATH": "/usr/bin:/bin"}
    assert subprocess.check_output(["python3", "-c", program], env=paths, text=True) == "10 3\n"
    dynamic = subprocess.check_output(["objdump", "-p", library], text=True)
    assert "RPATH" not in dynamic
    assert "RUNPATH" not in dynamic
    assert "SONAME               libelastic_ai_torch-2.13.so" in dynamic


@pytest.mark.parametrize("fails", ["", "c++-header", "-Winvalid-pch"])
def test_headers_of_torch_are_read_once_where_the_compiler_can(
    sources: Path, torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """A g++ that cannot write them down, or not take what it wrote, compiles each source as it is."""
    log, real = tmp_path / "commands", shutil.which("g++")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/g++").write_text(
        f'#!/bin/sh\necho "$*" >>{log}\ncase "$*" in *"{fails or "nothing"}"*) exit 1 ;; esac\nexec {real} "$@"\n'
    )
    (tmp_path / "bin/g++").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    torch_build.build_folder(tmp_path / "out", [torch])
    commands = log.read_text().splitlines()
    with_headers = {
        line.rpartition(" -c ")[2].split()[0] for line in commands if " -include " in line and " -c " in line
    }
    assert with_headers == (set() if fails else {str(sources / "client/one.cc")}), "the only one that includes torch"
    assert len([line for line in commands if " -c " in line]) == 4
    assert not list((tmp_path / "cache").rglob("*.gch"))


def test_the_archive_has_both_halves_and_what_they_are_built_for(sources: Path, torch: Torch, tmp_path: Path) -> None:
    other = Torch("2.9.1", "def", torch.folder, 1)
    made = torch_build.build_archive(tmp_path / "a.tar.gz", [torch, other], "r1")
    again = torch_build.build_archive(tmp_path / "b.tar.gz", [torch, other], "r1")
    assert made.sha256 == again.sha256, "the same sources give the same bytes"
    with tarfile.open(made.path) as tar:
        modes = {member.name: member.mode for member in tar.getmembers()}
        file = tar.extractfile("engine.json")
        assert file is not None
        about = json.load(file)
    assert modes == {
        **dict.fromkeys(("engine.json", "lib/torch-operators.txt", "python/elastic_ai_torch/__init__.py"), 0o644),
        "lib/elastic_ai_torchserver/main.py": 0o644,
        "bin/elastic-ai-torchserver": 0o755,
        "lib/libelastic_ai_cuda_memory.so": 0o755,
        **{f"lib/libelastic_ai_{half}-{minor}.so": 0o755 for half in ("torch", "torchserver")
           for minor in ("2.13", "2.9")},
    }  # fmt: skip
    assert (about["engine"], about["release"], about["torch"]) == ("torch", "r1", ["2.9", "2.13"]), "the newest last"
    with pytest.raises(BuildError, match=r"PyTorch 2\.13 is given twice"):
        torch_build.build_folder(tmp_path / "c", [torch, torch])


def test_a_fault_in_a_source_is_named_with_its_line(sources: Path, torch: Torch, tmp_path: Path) -> None:
    (sources / "client/two.cc").write_text("int x = nothing;\n")
    with pytest.raises(BuildError, match=r"g\+\+ failed for torch/client/two\.cc:\n.*two\.cc:1:9: error: .nothing"):
        torch_build.build_folder(tmp_path / "out", [torch])
    (sources / "client/two.cc").write_text("int missing(); int x() { return missing(); }\n")
    with pytest.raises(
        BuildError, match=r"failed for libelastic_ai_torch-2\.13\.so:\n(?s:.*)undefined reference to .missing"
    ):
        torch_build.build_folder(tmp_path / "out", [torch])


def test_without_sources_of_a_half_nothing_is_built(sources: Path, torch: Torch, tmp_path: Path) -> None:
    shutil.rmtree(sources / "server")
    shutil.rmtree(sources / "shared")
    with pytest.raises(BuildError, match="no sources of libelastic_ai_torchserver"):
        torch_build.build_folder(tmp_path / "out", [torch])


@pytest.mark.parametrize(
    ("versions", "chosen"),
    [
        (["2.14.1", "2.14.0", "2.13.0", "2.12.2", "2.12.0", "2.11.0"], ["2.14.1", "2.13.0", "2.12.2"]),
        (["2.9.1", "2.10.0", "2.8.0", "1.13.1"], ["2.10.0", "2.9.1"]),
        (["2.13.0rc1", "2.8.0"], []),
        ([], []),
    ],
)
def test_all_are_the_last_three_releases_that_the_engine_is_for(versions: list[str], chosen: list[str]) -> None:
    assert torch_releases.newest(versions) == chosen


def test_an_index_without_pytorch_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BuildError, match=r"--all: pip: .*; give the releases by --torch PYTHON instead"):
        torch_releases._pip(["index", "versions", "--nonsense"], "--all")
    monkeypatch.setattr(torch_releases, "_pip", lambda _words, _what: "Available versions: 2.8.0, 2.7.1\n")
    with pytest.raises(
        BuildError, match=r"the package index has no torch of 2\.9 or newer; give --torch PYTHON instead"
    ):
        torch_releases.last_releases()
    monkeypatch.setattr(
        torch_releases, "_pip", lambda _words, _what: "Available versions: 2.15.0, 2.13.0+cpu, 2.13.0\n"
    )
    assert torch_releases.last_releases() == ["2.15.0", "2.13.0"]


def test_an_environment_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[list[str]] = []
    monkeypatch.setattr(torch_releases, "_pip", lambda words, _what: asked.append(list(words)))
    first = torch_releases.python_with("2.13.0")
    assert torch_releases.python_with("2.13.0") == first
    assert Path(first).exists()
    assert [words[-1] for words in asked] == ["torch==2.13.0"]
    assert asked[0][:2] == ["--python", first]


@pytest.fixture
def python(tmp_path: Path, torch: Torch) -> Callable[[str], str]:
    """A Python that answers with these words."""

    def made(answer: str) -> str:
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\ncat <<'END'\n{answer}\nEND\n")
        path.chmod(0o755)
        return str(path)

    return made


def test_a_python_without_pytorch_or_with_an_old_one_is_refused_with_what_then(
    python: Callable[[str], str], torch: Torch, tmp_path: Path
) -> None:
    told = {"version": "2.13.0+cpu", "git": "abc", "folder": str(torch.folder)}
    assert torch_build.ask(python(json.dumps(told))) == torch
    for answer, words in (
        ({"fault": "No module named 'torch'"}, r"it has no PyTorch \(No module named 'torch'\); install torch there"),
        ({**told, "version": "2.4.1"}, r"PyTorch 2\.4\.1; the engine is for 2\.9 and newer"),
        ({**told, "version": "main"}, "is no release"),
        ({**told, "folder": str(tmp_path)}, r"has no headers \(include/\); install PyTorch's own wheel"),
    ):
        with pytest.raises(BuildError, match=words):
            torch_build.ask(python(json.dumps(answer)))
    for path in ("/nowhere/python", python("hello")):
        with pytest.raises(BuildError, match=rf"--torch {path}: not a Python that runs here"):
            torch_build.ask(path)


def test_the_command_prints_what_was_built(
    sources: Path, torch: Torch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_build, "ask", lambda _python: torch)
    folder = CliRunner().invoke(engine, ["build", "torch", "--torch", "python", "--out", str(tmp_path / "out")])
    assert folder.exit_code == 0, folder.output
    assert "PyTorch: 2.13" in folder.output
    archive = ["build", "torch", "--torch", "python", "--out", str(tmp_path / "e.tar.gz"), "--json"]
    document = json.loads(CliRunner().invoke(engine, archive).stdout)
    assert (document["engine"], document["torch"], len(document["sha256"])) == ("torch", ["2.13"], 64)
    assert "give --torch PYTHON" in CliRunner().invoke(engine, ["build", "torch"]).output
    assert (
        "--torch and --all are for the engine torch"
        in CliRunner().invoke(engine, ["build", "--torch", "python"]).output
    )
