"""`toolkit mirror plan` and `verify` answer programs as they answer people, with the same exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support import answers
from toolkit.commands import mirror
from toolkit.mirror import manifest, verifying
from toolkit.mirror.documents import Missing, Package, Plan, Repository
from toolkit.mirror.verifying import Checked

PACKAGE = Package(
    name="chrony", version="4.3", architecture="amd64", url="file:/x", file="c.deb", sha256="0" * 64, size=1000
)
PLAN = Plan(
    site="hall", made="2026-11-28T12:00:00Z", release="1", rate_bytes_s=500.0, notes=("no GPU server was recorded",),
    repositories=(Repository(name="distribution", system="debian12", packages=(PACKAGE, PACKAGE)),),
)  # fmt: skip
LACKS = Missing(system="debian12", role="docker", name="docker-ce", version="27")


def asked(command: Any, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(command, [*words, "--json"])
    return done.exit_code, done.stdout


@pytest.mark.parametrize(("missing", "code"), [((), 0), ((LACKS,), 1)])
def test_a_plan(monkeypatch: pytest.MonkeyPatch, missing: tuple[Missing, ...], code: int) -> None:
    made = PLAN.model_copy(update={"missing": missing})
    monkeypatch.setattr(mirror, "_planned", lambda *_: made)
    ended, said = asked(mirror.plan, "-i", "hall")
    assert ended == code
    found = answers.check(said, "mirror-plan")
    assert (found["size_bytes"], found["download_up_to_s"]) == (2000, 4.0)
    assert found["repositories"] == [{"name": "distribution", "system": "debian12", "packages": 2, "size_bytes": 2000}]
    assert [one["name"] for one in found["missing"]] == ["docker-ce"] * len(missing)


@pytest.mark.parametrize(("faults", "code"), [((), 0), (("packages/a.deb: is missing",), 1)])
def test_a_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, faults: tuple[str, ...], code: int) -> None:
    found = Checked(faults, 3, 900, "good", {"site": "hall", "signed": "2026-11-28T12:00:00Z", "key": "SHA256:x"})
    monkeypatch.setattr(verifying, "verify", lambda *_: found)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / manifest.MANIFEST).touch()
    ended, said = asked(mirror.verify, str(tmp_path))
    assert ended == code
    told = answers.check(said, "mirror")
    assert (told["faults"], told["files"], told["key"]) == (list(faults), 3, "SHA256:x")
