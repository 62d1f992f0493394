"""Folders of this user by the XDG Base Directory Specification: a relative path in a variable is ignored."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from jinja2 import Environment

from toolkit.deploy.site_state import SiteState
from toolkit.lease.client.running import private_folder
from toolkit.lease.notebook.server import short_folder
from toolkit.mirror import accepted, openpgp
from validation.base.files import cache_folder, users_folder
from validation.base.project import ROOT

PLACES: dict[str, tuple[Callable[[], Path], str]] = {
    "XDG_STATE_HOME": (lambda: SiteState(Path("/site/hosts.yml")).folder, ".local/state"),
    "XDG_CACHE_HOME": (lambda: cache_folder("x"), ".cache"),
    "XDG_DATA_HOME": (openpgp.key_home, ".local/share"),
}
ROLES = {"horovod": "horovod_cache", "acceptance": "acceptance_wheel_cache"}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "relative").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.mark.parametrize("variable", PLACES)
@pytest.mark.parametrize("value", ["relative", "~/relative", "./relative", ""])
def test_a_relative_path_is_ignored(variable: str, value: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, usual = PLACES[variable]
    monkeypatch.setenv(variable, value)
    assert place().is_relative_to(home / usual / "elastic-ai-toolkit")
    monkeypatch.setenv(variable, "/somewhere")
    assert place().is_relative_to("/somewhere/elastic-ai-toolkit")


def test_accepted_mirrors_are_kept_there_too(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    accepted.accept({"site": "hall"}, "0" * 64)
    assert len(list((home / ".local/state/elastic-ai-toolkit/mirror").iterdir())) == 1


def test_a_relative_folder_of_a_login_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    with private_folder() as folder:
        assert folder.is_absolute()
    made = Path(short_folder())
    made.rmdir()
    assert made.is_absolute()
    assert list(home.with_name("relative").iterdir()) == []


@pytest.mark.parametrize("role", ROLES)
def test_roles_look_where_the_programs_do(role: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = yaml.safe_load((ROOT / "roles" / role / "defaults/main.yml").read_text())[ROLES[role]]
    environment = Environment(autoescape=False)
    environment.tests["match"] = lambda value, pattern: re.match(pattern, value) is not None
    values: dict[str, str] = {"HOME": str(home)}
    made = environment.from_string(text)
    for value in ("relative", "", "/somewhere"):
        values["XDG_CACHE_HOME"] = value
        monkeypatch.setenv("XDG_CACHE_HOME", value)
        found = made.render(lookup=lambda _, name: values[name])
        assert Path(found).is_relative_to(users_folder("XDG_CACHE_HOME", ".cache") / "elastic-ai-toolkit")
