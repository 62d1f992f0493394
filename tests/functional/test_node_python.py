"""What runs on nodes runs on the oldest Python that they have, 3.9 of EL 9. vermin (bin/test lint) looks at it all."""

from __future__ import annotations

import ast
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import ansible
import pytest

from tests.support.node_modules import ROOT
from tests.support.oldest_python import oldest_python

pytestmark = pytest.mark.engines

IMPORTS = """
import importlib, pathlib, sys
for folder in ("plugins/modules", "plugins/module_utils"):
    for path in sorted(pathlib.Path(sys.argv[1], folder).glob("*.py")):
        importlib.import_module("ansible_collections.elastic_ai.toolkit." + folder.replace("/", ".") + "." + path.stem)
        print(path.stem)
"""


@pytest.fixture(scope="module")
def on_a_node(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs Python 3.9 with arguments and input, this collection and Ansible on its path and nothing else."""
    python = oldest_python()
    if python is None:
        pytest.skip("this machine has no Python 3.9")
    folder = tmp_path_factory.mktemp("node")
    (folder / "ansible").symlink_to(Path(ansible.__file__).parent)
    systemctl = folder / "bin/systemctl"
    systemctl.parent.mkdir()
    systemctl.write_text(
        "#!/bin/sh\nprintf 'Id=a.service\\nActiveState=active\\n\\nId=b.service\\nActiveState=dead\\n'\n"
    )
    systemctl.chmod(0o755)
    path = {"PATH": f"{systemctl.parent}:{os.environ['PATH']}", "PYTHONPATH": f"{folder}:{ROOT}"}

    def run(*arguments: str, given: str = "") -> str:
        environment = {**os.environ, **path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [python, *arguments], input=given, capture_output=True, text=True, check=False, cwd=folder, env=environment
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_every_module_loads_on_python_3_9(on_a_node: Any) -> None:
    assert {"node_state", "package_set", "apt"} <= set(on_a_node("-c", IMPORTS, str(ROOT)).split())


def test_a_node_is_read_by_python_3_9(on_a_node: Any) -> None:
    def ask(module: str, **arguments: Any) -> dict[str, Any]:
        name = f"ansible_collections.elastic_ai.toolkit.plugins.modules.{module}"
        answer: dict[str, Any] = json.loads(on_a_node("-m", name, given=json.dumps({"ANSIBLE_MODULE_ARGS": arguments})))
        return answer

    state = ask("node_state", units=["a.service", "b.service"], packages=["bash"], pci=True)
    assert [state["units"][unit]["active"] for unit in ("a.service", "b.service")] == [True, False]
    assert ask("node_preflight", controller_time_s=0, disk_paths=["/"])["python"].startswith("3.9.")


#: Modules of the standard library that Python has no more: What's New in Python 3.12, 3.13 (PEP 594) and 3.14.
REMOVED = set(
    [
        "aifc",
        "asynchat",
        "asyncore",
        "audioop",
        "cgi",
        "cgitb",
        "chunk",
        "crypt",
        "distutils",
        "imghdr",
        "imp",
        "lib2to3",
        "mailcap",
        "msilib",
        "nis",
        "nntplib",
        "ossaudiodev",
        "pipes",
        "smtpd",
        "sndhdr",
        "spwd",
        "sunau",
        "telnetlib",
        "uu",
        "xdrlib",
    ]
)


def test_nothing_uses_a_module_that_a_later_python_has_not() -> None:
    """Up to 3.14, which this machine has not; on the controller as on nodes."""
    folders = ("plugins", "toolkit", "validation", "roles", "engine", "tools")
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(files) > 400
    found = []
    for path in files:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            found += [f"{path}: {name}" for name in names if name.partition(".")[0] in REMOVED]
    assert found == []


OF_A_FRAMEWORK = {"torch_attempts", "torch_load", "torch_networks", "tf_load", "tf_networks"}
"""What probes start by a Python that has torch or TensorFlow; vermin looks at them too."""
PROBES = """
import importlib, pathlib, sys
for path in sorted(pathlib.Path(sys.argv[1], "validation/probes").glob("*.py")):
    if path.stem not in sys.argv[2:]:
        importlib.import_module("validation.probes." + path.stem)
        print(path.stem)
"""


def test_every_probe_loads_on_python_3_9(on_a_node: Any) -> None:
    """With the standard library alone: nothing else is on its path."""
    there = {path.stem for path in (ROOT / "validation/probes").glob("*.py")} - {"__main__"} - OF_A_FRAMEWORK
    assert set(on_a_node("-c", PROBES, str(ROOT), "__main__", *OF_A_FRAMEWORK).split()) == there


@pytest.mark.parametrize(
    ("kind", "params", "found"),
    [
        ("facts", {"rdma_only": True}, '"rdma_devices"'),
        ("facts", {}, '"python": "3.9.'),
        ("gpu-health", {}, "gpu-health"),
    ],
)
def test_probes_run_on_python_3_9(on_a_node: Any, kind: str, params: dict[str, Any], found: str) -> None:
    """What they print is a whole document, whatever this machine has."""
    said = on_a_node("-m", "validation.probes", kind, json.dumps(params))
    assert found in said
    assert json.loads(said)["kind"] == kind
