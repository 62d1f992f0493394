"""What one process of a run compiled of a template serves all others, and says the same."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, sys
from jinja2.environment import Environment
from ansible.parsing.dataloader import DataLoader
from ansible.plugins.loader import init_plugin_loader
from ansible.template import Templar, trust_as_template
folder, forbidden = sys.argv[1:]
init_plugin_loader([])
compiled = []
own = Environment.compile
def counted(self, source, *rest, **more):
    compiled.append(str(source))
    if forbidden:
        raise SystemExit(f"compiled again: {source}")
    return own(self, source, *rest, **more)
Environment.compile = counted
if folder:
    from ansible_collections.elastic_ai.toolkit.plugins.plugin_utils import templates
    if not templates.keep(folder):
        raise SystemExit("not known of this release of Ansible")
values = {"a": 1, "words": ["b", "c"], "inner": trust_as_template("{{ a + 1 }}"), "text": "x"}
templar = Templar(loader=DataLoader(), variables=values)
found = []
for text in json.load(sys.stdin)["templates"]:
    try:
        found.append(templar.template(trust_as_template(text)))
    except Exception as fault:
        found.append(f"{type(fault).__name__}: {fault}".splitlines()[0])
for text in ("a == 1", "inner == 2 and words | length == 2", "words is contains 'z'"):
    found.append(templar.evaluate_conditional(trust_as_template(text)))
print(json.dumps({"found": found, "compiled": len(compiled)}))
"""
GOOD = (
    "{{ a + 1 }}",
    "{{ inner }} and {{ words | join(' ') }}",
    r"{{ 'a\\.b' | regex_replace('\\.', '-') }}",
    "{{ words | map('upper') | list }}",
    "{% for word in words %}{{ word }},{% endfor %}\n",
    "#jinja2: variable_start_string:'[%', variable_end_string:'%]'\n[% a %] {{ a }}",
    "[% a %] {{ a }}",
    "{{ missing | default('none') }}",
    "{{ lookup('ansible.builtin.vars', 'text') }}",
)
BAD = ("{{ a + }}", "{{ missing }}", "{{ a | there_is_no_such_filter }}")


def answered(templates: tuple[str, ...], folder: Path | None, forbidden: bool = False) -> dict[str, Any]:
    """What a process of its own makes of templates, and how many it compiled."""
    words = [sys.executable, "-c", PROGRAM, str(folder or ""), "x" * forbidden]
    done = subprocess.run(
        words, input=json.dumps({"templates": templates}), capture_output=True, text=True, check=False, cwd=ROOT
    )
    if "not known of this release" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_a_second_process_compiles_nothing_and_says_the_same(tmp_path: Path) -> None:
    plain = answered(GOOD, None)
    first = answered(GOOD, tmp_path)
    second = answered(GOOD, tmp_path, forbidden=True)
    assert plain["found"] == first["found"] == second["found"]
    assert plain["compiled"] >= first["compiled"] > second["compiled"] == 0


def test_what_cannot_be_compiled_is_the_same_error_each_time(tmp_path: Path) -> None:
    plain = answered(BAD, None)["found"]
    assert plain == answered(BAD, tmp_path)["found"] == answered(BAD, tmp_path)["found"]


def test_a_damaged_file_is_compiled_again_and_others_cannot_read_the_folder(tmp_path: Path) -> None:
    first = answered(GOOD, tmp_path)
    (folder,) = tmp_path.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in folder.iterdir():
        file.write_bytes(file.read_bytes()[:7])
    assert answered(GOOD, tmp_path)["found"] == first["found"]
    for file in folder.iterdir():
        file.write_bytes(b"")
    assert answered(GOOD, tmp_path)["found"] == first["found"]
