"""NVML by each way to a node: the wheel of the probes, the modules of leases and the exporter, as they lie there.

With Python 3.9 where this machine has it, nothing but its standard library, and emulated GPUs.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from tests.support.engine_run import UUIDS, built, describe
from tests.support.node_modules import ROOT, load_filters
from tests.support.oldest_python import oldest_python
from toolkit.engine import build
from toolkit.lab.devices import GPU_HEALTH
from validation.execute.here import HereLauncher
from validation.nvml import binding
from validation.probes.__main__ import digest

pytestmark = pytest.mark.skipif(bool(build.missing_tools()), reason=f"no compiler here: {build.missing_tools()}")
PYTHON = oldest_python() or sys.executable
Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the Python of a node that has two emulated GPUs, and nothing of this process's environment."""
    links = {"nvlinks": 4, "nvlinks_up": 4, "nvlink_mb_s": 25_000}
    node = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(built() / "devices")}
    node |= describe(tmp_path, **GPU_HEALTH | links)

    def run(*words: str, python: str = PYTHON) -> str:
        command = [python, *words]
        done = subprocess.run(command, cwd="/", env=node, capture_output=True, text=True, check=False, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def variables(role: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / f"roles/{role}/vars/main.yml").read_text(encoding="utf-8"))
    return found


def carried(role: str, folder: Path, *modules: str) -> None:
    """Modules of this tree, and the binding as the role's filter gives it, as they lie on a node."""
    for name in modules:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, folder / name)
    given = load_filters("project")["nvml_binding"](str(ROOT / "roles" / role))
    shutil.copyfile(given["file"], folder / "validation/nvml/pynvml.py")
    (folder / "validation/nvml/pynvml.txt").write_text(given["note"])


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel of the probes and nothing else, as role acceptance makes it."""
    folder = tmp_path_factory.mktemp("node")
    words = [sys.executable, str(ROOT / "tools/build_wheel.py"), "--cache", str(folder / "cache")]
    wheel = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)["wheel"]
    subprocess.run([PYTHON, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    python = folder / "venv/bin/python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--no-index", "--no-deps", wheel]
    subprocess.run([*install, "--no-compile"], check=True)
    return python


def test_the_wheel_of_the_probes_brings_the_binding_and_its_licence(node: Path) -> None:
    (packages,) = node.parents[1].glob("lib/python*/site-packages")
    file, note = binding.carried(ROOT / "pyproject.toml")
    assert (packages / "validation/nvml/pynvml.py").read_bytes() == file.read_bytes()
    assert (packages / "validation/nvml/pynvml.txt").read_text() == note
    (licence,) = packages.glob("elastic_ai_toolkit-*.dist-info/licenses/pynvml.txt")
    assert licence.read_text() == note
    assert not (packages / "pynvml.py").exists(), "torch, which may have another, would load this one"


def test_a_node_with_the_binding_has_the_probes_that_its_controller_expects(node: Path, run: Run) -> None:
    """The controller has the binding somewhere else, and in another version perhaps: it is none of the probes."""
    said = run("-c", "from validation.probes.__main__ import digest; print(digest())", python=str(node))
    assert said.strip() == digest()


def test_probes_of_the_wheel_ask_nvml(node: Path, run: Run) -> None:
    said = json.loads(run("-m", "validation.probes", "gpu-health", "{}", python=str(node)))
    assert (said["error"], said["facts"]["unread"], said["facts"]["emulated"]) == (None, "", True)
    assert [(gpu["uuid"], gpu["ecc"], gpu["pcie_width"]) for gpu in said["facts"]["gpus"]] == [
        (uuid, True, 16) for uuid in UUIDS
    ]
    facts = json.loads(run("-m", "validation.probes", "facts", '{"interfaces": []}', python=str(node)))["facts"]
    assert [len(gpu["links"]) for gpu in facts["nvlink"]] == [4, 4]
    (program,) = node.parents[1].glob("lib/python*/site-packages/validation/probes/nvlinks.py")
    assert json.loads(run("-I", str(program), python=str(node)))["driver"].endswith("-emulated")


def test_modules_of_leases_ask_nvml(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "lease-server"
    globs = [*ROOT.glob("toolkit/lease/**/*.py")]
    modules = [path.relative_to(ROOT).as_posix() for path in globs]
    carried("remoting_server", folder, *variables("remoting_server")["__remoting_server_modules"], *modules)
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from toolkit.lease.machine import nvml; "
    said = run("-I", "-S", "-c", code + "print([g.uuid for g in nvml.gpus()], nvml.utilisation(), nvml.processes())")
    assert said.strip() == f"{list(UUIDS)} {dict.fromkeys(UUIDS, 0)} { {one: [] for one in UUIDS} }"


def test_the_exporter_asks_nvml(tmp_path: Path, run: Run) -> None:
    folder = tmp_path / "monitoring"
    of_role = variables("monitoring")
    carried("monitoring", folder, *of_role["__monitoring_modules"], *of_role["__monitoring_gpu_modules"])
    for name in ("gpu_metrics.py", "xid_metrics.py", "textfile.py"):
        shutil.copyfile(ROOT / "roles/monitoring/files" / name, folder / name)
    run("-S", str(folder / "gpu_metrics.py"), "--once", "--output", str(tmp_path / "gpu.prom"))
    text = (tmp_path / "gpu.prom").read_text()
    assert all(f'uuid="{uuid}"' in text for uuid in UUIDS)
    assert "elastic_ai_gpu_nvml_up 1.0" in text
    words = [PYTHON, "-S", folder / "xid_metrics.py", "--once", "--output", tmp_path / "xid.prom"]
    done = subprocess.run(words, cwd="/", env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), "1 where this machine's kernel log is closed"
    assert "elastic_ai_kernel_log_read" in (tmp_path / "xid.prom").read_text(), done.stderr


@pytest.mark.parametrize("role", ["monitoring", "remoting_server"])
def test_roles_put_the_binding_and_its_note_beside_what_loads_it(role: str) -> None:
    text = (ROOT / f"roles/{role}/vars/main.yml").read_text() + (ROOT / f"roles/{role}/tasks").joinpath(
        "watch.yml" if role == "monitoring" else "present.yml"
    ).read_text()
    for end in (f'/validation/{binding.__name__.split(".")[1]}/{name}"' for name in (binding.FILE, binding.NOTE)):
        assert text.count(end) == 1, end


def test_the_scan_asks_no_nvml() -> None:
    """It goes through ssh whole, to a node that has nothing yet."""
    from toolkit.scan import shipped

    assert [name for name in shipped.sources() if "nvml" in name or "nvlinks" in name] == []


@pytest.mark.parametrize("tool", ["build_wheel", "filter"])
def test_a_controller_without_the_package_says_what_installs_it(
    tmp_path: Path, tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if tool == "build_wheel":
        words = ["-I", "-S", str(ROOT / "tools/build_wheel.py"), "--cache", str(tmp_path)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "error: the wheel for the nodes cannot be packed: "
            f"{sys.executable} has no nvidia-ml-py: {sys.executable} -m pip install nvidia-ml-py\n"
        )
    else:
        monkeypatch.setattr("importlib.metadata.distribution", _absent)
        with pytest.raises(AnsibleFilterError, match="-m pip install nvidia-ml-py"):
            load_filters("project")["nvml_binding"](str(ROOT / "roles/monitoring"))


def _absent(name: str) -> Any:
    from importlib.metadata import PackageNotFoundError

    raise PackageNotFoundError(name)


def test_probes_of_this_machine_are_told_where_the_binding_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """They start torch's Python with their own environment, which the command need not have had so."""
    monkeypatch.delenv(binding.TOLD, raising=False)

    async def probed() -> str:
        launcher = HereLauncher()
        remote = await launcher.start("here", ["gpu-health", "{}"])
        environment = Path(f"/proc/{remote._process.pid}/environ").read_text()
        await launcher.close()
        return environment

    assert f"{binding.TOLD}={binding.installed()[0]}" in asyncio.run(probed()).split("\0")


def test_a_program_of_another_python_on_this_machine_is_told_where_the_binding_is(tmp_path: Path, run: Run) -> None:
    """torch's, which `validate --here` finds: a checkout has no copy, and that Python has no such package."""
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from validation.nvml import Nvml, NvmlError\n"
    code += "try:\n with Nvml() as n: print(n.count())\nexcept NvmlError as e: print(e)"
    assert "has no nvidia-ml-py" in run("-I", "-S", "-c", code)
    told = f"import os; os.environ.update({binding.told()!r});"
    assert run("-I", "-S", "-c", told + code).strip() == "2"
