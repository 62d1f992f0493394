"""What the shell completes of values: fabrics, profiles, suites, runs, nodes, leases, labs, criteria, claims.

One table says which parameter takes what. Names come from files beside this one, from folders of runs and from the
lab's own record, so that nothing heavy is imported for them; what cannot be read completes nothing. Standard library
and click only: machines of the pool import it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import click
from click import shell_completion
from click.shell_completion import CompletionItem

SUITES = (
    "preflight", "as-built", "transport", "compute", "burn-in", "training", "remoting", "operations", "storage",
    "recovery", "witness",
)  # fmt: skip
"""A test holds them against those of the plan."""
FORMATS = ("html", "pdf", "json", "junit", "prom", "none")
_VALIDATION = Path(__file__).resolve().parents[1] / "validation"
_RULES = _VALIDATION / "rules"
_ID = re.compile(r"^\s*- id: ([\w.-]+)", re.MULTILINE)
_HOST = re.compile(r"^\s+([A-Za-z0-9][\w.-]*):\s*(?:\{.*|$)")
_SLURM_S = 2.0
_PLAIN = re.compile(r"\w[\w.@%+=-]*")
"""What is offered: shells put an answer into the command line as it is, and would run `$(...)` or expand `*` in it."""
_UNREADABLE = (
    *(OSError, ValueError, LookupError, TypeError, ImportError, AttributeError, RecursionError),
    subprocess.SubprocessError,
)

Names = Callable[[click.Context], Iterable[str]]


def _stems(folder: str) -> list[str]:
    return sorted(p.stem for p in (_RULES / folder).glob("*.yml") if not p.name.startswith("_"))


def _ids(files: Iterable[Path]) -> list[str]:
    return [id_ for p in sorted(files, key=lambda p: p.name) for id_ in _ID.findall(p.read_text("utf-8"))]


def _fabrics(_: click.Context) -> list[str]:
    return _stems("fabrics")


def _profiles(_: click.Context) -> list[str]:
    return _stems("profiles")


def _suites(_: click.Context) -> Iterable[str]:
    return SUITES


def _formats(_: click.Context) -> Iterable[str]:
    return FORMATS


def _criteria(_: click.Context) -> list[str]:
    return _ids(_VALIDATION.glob("measures/*/[0-9][0-9]-*.yml"))


def _claims(_: click.Context) -> list[str]:
    return _ids((_RULES / "reference").glob("*.yml"))


def _documents(_: click.Context) -> list[str]:
    return _stems("reference")


def _runs(ctx: click.Context) -> list[str]:
    """The newest first."""
    folder = Path(ctx.params.get("runs_dir") or "runs")
    return sorted((p.name for p in folder.iterdir() if (p / "run.json").is_file()), reverse=True)


def _jobs(ctx: click.Context) -> list[str]:
    """Training jobs of the run that is named, or of the newest."""
    named = [str(name) for name in ctx.params.get("names") or ()]
    found = named or _runs(ctx)[:1]
    run = Path(ctx.params.get("runs_dir") or "runs") / found[0]
    file = (run if run.is_dir() else Path(found[0])) / "plan.json"
    plan = json.loads(file.read_text("utf-8")) if file.is_file() else {"measurements": []}  # a pipe would never end
    return [m["id"] for m in plan["measurements"] if m["kind"] == "training-short"]


def _labs(_: click.Context) -> list[str]:
    from toolkit.lab.spec import state_root  # of the machine that provisions; the pool's have no lab

    return sorted(p.parent.name for p in (state_root() / "labs").glob("*/spec.json"))


def _lab_nodes(ctx: click.Context) -> list[str]:
    from toolkit.lab.spec import DEFAULT_NAME, lab_dir

    spec = json.loads((lab_dir(ctx.params.get("name") or DEFAULT_NAME) / "spec.json").read_text("utf-8"))
    return [node["name"] for node in spec["nodes"]]


def _nodes(ctx: click.Context) -> list[str]:
    """Of the inventory that is named, as far as its hosts are written out; without one, of the lab."""
    given = ctx.params.get("inventory")
    inventory = Path(given) if given else Path("inventories/lab")
    file = inventory / "hosts.yml" if inventory.is_dir() else inventory
    text = file.read_text("utf-8") if file.is_file() else "plugin: elastic_ai.toolkit.lab"
    if "plugin: elastic_ai.toolkit.lab" in text:
        lab = re.search(r"^lab: *([\w-]+)", text, re.MULTILINE)
        return _lab_nodes(click.Context(ctx.command)) if lab is None else _of_lab(lab[1])
    return _hosts(text)


def _of_lab(name: str) -> list[str]:
    from toolkit.lab.spec import lab_dir

    return [node["name"] for node in json.loads((lab_dir(name) / "spec.json").read_text("utf-8"))["nodes"]]


def _hosts(text: str) -> list[str]:
    """Keys below each `hosts:`; ranges are no names."""
    found: dict[str, None] = {}
    depth: int | None = None
    below: int | None = None
    for line in text.splitlines():
        bare = line.lstrip()
        if not bare or bare.startswith("#"):
            continue
        indent = len(line) - len(bare)
        if depth is not None and indent <= depth:
            depth = None
        if depth is not None and (host := _HOST.match(line)):
            below = indent if below is None else below
            if indent == below:
                found[host[1]] = None
        if bare.startswith("hosts:"):
            depth, below = indent, None
    return list(found)


def _leases(_: click.Context) -> list[str]:
    """One's own, by Slurm; none where it is not here."""
    if not shutil.which("squeue"):
        return []
    words = ["squeue", "--noheader", "--me", "--name=elastic-ai-lease", "--format=%A"]
    env = {**os.environ, "LC_ALL": "C", "LANGUAGE": ""}
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=_SLURM_S, check=False)
    return sorted(set(done.stdout.split()))


def _topics(ctx: click.Context) -> list[str]:
    root = ctx.find_root().command
    return root.list_commands(ctx) if isinstance(root, click.Group) else []


#: (command, parameter) -> the names that it takes, and whether several may stand there with commas between them.
#: "" stands for any command.
TABLE: dict[tuple[str, str], tuple[Names, bool]] = {
    ("", "fabric"): (_fabrics, False),
    ("validate", "fabric"): (_fabrics, True),
    ("fabrics show", "name"): (_fabrics, False),
    ("", "profile"): (_profiles, False),
    ("profiles show", "name"): (_profiles, False),
    ("", "suite"): (_suites, False),
    ("", "suites"): (_suites, False),
    ("", "formats"): (_formats, True),
    ("validate", "without"): (_criteria, False),
    ("", "criterion_id"): (_criteria, False),
    ("", "claim_id"): (_claims, False),
    ("", "document"): (_documents, False),
    ("", "resume"): (_runs, False),
    ("", "rejudge"): (_runs, False),
    ("", "accepted"): (_runs, False),
    ("judge", "name"): (_runs, False),
    ("compare", "before"): (_runs, False),
    ("compare", "after"): (_runs, False),
    ("", "names"): (_runs, False),
    ("", "run"): (_runs, False),
    ("verify", "path"): (_runs, False),
    ("report", "trace"): (_jobs, False),
    ("", "limit"): (_nodes, True),
    ("", "peers"): (_nodes, True),
    ("narrow", "nodes"): (_nodes, True),
    ("node add", "name"): (_nodes, False),
    ("node remove", "name"): (_nodes, False),
    ("node replace", "name"): (_nodes, False),
    ("lab ssh", "node"): (_lab_nodes, False),
    ("lab fault set", "node"): (_lab_nodes, False),
    ("lab fault clear", "node"): (_lab_nodes, False),
    ("lab down", "leaving"): (_lab_nodes, False),
    ("lab down", "name"): (_labs, False),
    ("lab ssh", "name"): (_labs, False),
    ("lab status", "name"): (_labs, False),
    ("lab drill", "name"): (_labs, False),
    ("lab fault set", "name"): (_labs, False),
    ("lab fault clear", "name"): (_labs, False),
    ("", "lease"): (_leases, False),
    ("", "number"): (_leases, False),
    ("lease release", "names"): (_leases, False),
    ("help", "topic"): (_topics, False),
}

_ALSO_FILES = (_runs, _profiles)
"""What stands there by its name, or is a folder or a file."""


def names_for(ctx: click.Context, parameter: str) -> tuple[Names, bool] | None:
    """What a parameter of the context's command takes; None where it is not known."""
    command = ctx.command_path.partition(" ")[2]
    return TABLE.get((command, parameter)) or TABLE.get(("", parameter))


class _Values:
    """Beside what click completes by itself: values of the table. It is mixed into click's class of each shell."""

    cli: click.Command
    ctx_args: Any
    prog_name: str

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem]:
        """What may stand in place of `incomplete`."""
        ctx = shell_completion._resolve_context(self.cli, self.ctx_args, self.prog_name, args)
        thing, word = shell_completion._resolve_incomplete(ctx, args, incomplete)
        asked = names_for(ctx, thing.name or "") if isinstance(thing, click.Parameter) else None
        own: list[CompletionItem] = super().get_completions(args, incomplete)  # type: ignore[misc]
        if asked is None:
            return own
        names, several = asked
        files = own or ([CompletionItem(word, type="file")] if names in _ALSO_FILES else [])
        if "/" in word:
            return files
        before, comma, last = word.rpartition(",") if several else ("", "", word)
        known: list[str] = []
        with contextlib.suppress(*_UNREADABLE):
            known = list(names(ctx))
        taken = before.split(",")
        fit = [n for n in known if n.startswith(last) and n not in taken and _PLAIN.fullmatch(n)]
        return [CompletionItem(f"{before}{comma}{n}") for n in fit] or (files if word else [])


def register() -> None:
    """Have click use it, in every shell that it knows."""
    for name in ("bash", "zsh", "fish"):
        base = shell_completion.get_completion_class(name)
        assert base is not None
        shell_completion.add_completion_class(type(f"Toolkit{base.__name__}", (_Values, base), {}), name)
