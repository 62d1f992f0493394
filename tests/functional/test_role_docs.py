"""The page of each role: made from its argument_specs, text by hand is left alone, a stale page is named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support.node_modules import load

pytestmark = pytest.mark.systems

REPO = Path(__file__).parents[2]
TOOL = REPO / "tools/role_docs.py"
SPEC = {
    "argument_specs": {
        "main": {
            "short_description": "Serve tea",
            "description": ["Needs water, see O(tea_water).", "Result C(tea_result)."],
            "options": {
                "tea_state": {
                    "type": "str",
                    "choices": ["present", "absent"],
                    "default": "present",
                    "description": "Tea",
                },
                "tea_water": {
                    "type": "list",
                    "required": True,
                    "description": "hot | cold",
                    "options": {"degrees": {"type": "int", "description": "how hot"}},
                },
                "tea_cup": {"type": "str", "description": "Into which."},
                "tea_pot": {"type": "str", "description": "Out of which."},
                "tea_version": {
                    "type": "str",
                    "default": "{{ (stack_set | default({})).get('tea', {}).get('version', '1.0') }}",
                    "description": "Which. V(green\\)) is one.",
                },
            },
        }
    }
}


def run(roles: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(TOOL), "--roles", str(roles), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture
def roles(tmp_path: Path) -> Path:
    (tmp_path / "tea/meta").mkdir(parents=True)
    (tmp_path / "tea/meta/argument_specs.yml").write_text(yaml.safe_dump(SPEC, sort_keys=False), encoding="utf-8")
    (tmp_path / "tea/defaults").mkdir()
    long = "{{ 'a' if x == 'b' else 'c' }}" * 3
    defaults = {"tea_state": "present", "tea_cup": "{{ mug }}", "tea_pot": long}
    (tmp_path / "tea/defaults/main.yml").write_text(yaml.safe_dump(defaults), encoding="utf-8")
    return tmp_path


def test_a_page_tells_every_option_with_its_default(roles: Path) -> None:
    assert run(roles).returncode == 0
    page = (roles / "tea/README.md").read_text(encoding="utf-8")
    assert page.startswith("# tea\n")
    assert "Serve tea.\n\n- Needs water, see `tea_water`.\n- Result `tea_result`.\n" in page
    assert "| `tea_state` | `present` | Tea One of `present`, `absent`. |" in page
    assert "| `tea_water` | **required** | Hot \\| cold (list) |" in page
    assert "| `tea_water[].degrees` | none | How hot (int) |" in page
    assert "| `tea_cup` | `{{ mug }}` | Into which. |" in page
    assert "| `tea_pot` | computed, see [defaults](defaults/main.yml) | Out of which. |" in page
    assert "| `tea_version` | stack release: `tea.version`, else `1.0` | Which. `green)` is one. |" in page


def test_check_names_the_stale_page_and_writes_nothing(roles: Path) -> None:
    run(roles)
    assert run(roles, "--check").returncode == 0
    spec = roles / "tea/meta/argument_specs.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("Serve tea", "Serve coffee"), encoding="utf-8")
    page = (roles / "tea/README.md").read_text(encoding="utf-8")
    stale = run(roles, "--check")
    assert stale.returncode == 1
    assert "tea/README.md: stale" in stale.stdout
    assert (roles / "tea/README.md").read_text(encoding="utf-8") == page


def test_text_by_hand_is_left_alone(roles: Path) -> None:
    (roles / "tea/README.md").write_text("# Tea\n\nBrewed by hand.\n", encoding="utf-8")
    run(roles)
    path = roles / "tea/README.md"
    path.write_text(path.read_text(encoding="utf-8") + "\nBelow, too.\n", encoding="utf-8")
    spec = roles / "tea/meta/argument_specs.yml"
    spec.write_text(spec.read_text(encoding="utf-8").replace("Serve tea", "Serve coffee"), encoding="utf-8")
    run(roles)
    page = path.read_text(encoding="utf-8")
    assert page.startswith("# Tea\n\nBrewed by hand.\n\n<!-- From here on generated")
    assert page.endswith("\nBelow, too.\n")
    assert page.count("Serve coffee") == 1
    assert "Serve tea" not in page


def test_the_pages_of_this_repository_are_fresh() -> None:
    done = run(REPO / "roles", "--check")
    assert done.returncode == 0, done.stdout


def test_the_playbooks_that_run_a_role_are_found() -> None:
    tool = load("tools/role_docs.py")
    assert tool.playbooks_of("preflight") == ["preflight"]
    assert tool.playbooks_of("tea") == []
