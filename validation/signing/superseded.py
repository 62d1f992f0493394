"""Earlier verdicts of a run, which `toolkit validate --rejudge` keeps under `superseded/`: judged and made once more.

Each folder there holds a verdict, its reports and the rules that were replaced then, with the run.json of that time.
What was not replaced stayed in force, and is found by the hashes in that run.json.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from validation.model.load import ConfigError, read_bytes
from validation.report.customer import FILES as BROUGHT
from validation.report.customer import NAME as REPORT_YML
from validation.report.formats import FILES
from validation.run.names import RESULTS, RUN, VERDICT
from validation.run.read import read
from validation.run.rules_hashes import Rules
from validation.signing.again import judged_again, made_again
from validation.signing.forms import odd_forms
from validation.signing.strays import SUPERSEDED

_RAW = "raw"
_NAME = re.compile(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\dZ(_\d+)?")


def earlier(run_dir: Path, names: Iterable[str], rules: Rules) -> Iterator[str]:
    """What of the superseded files among `names` does not follow from the data of the run, one line for each thing.

    `rules`: those in force; of an earlier verdict they are no others, but for those of a release.
    """
    mine = [name for name in names if name.startswith(SUPERSEDED)]
    folders = {name.split("/")[1] for name in mine if name.count("/") > 1}
    yield from (f"{name}: nothing in the run names it" for name in mine if name.count("/") < 2)
    all_ = sorted(f"{SUPERSEDED}{folder}" for folder in folders)
    for folder in sorted(folders):
        inside = [name for name in mine if name.startswith(f"{SUPERSEDED}{folder}/")]
        try:
            yield from _one(run_dir, f"{SUPERSEDED}{folder}", inside, all_, rules)
        except (ConfigError, OSError) as fault:
            words = str(fault).replace(f"{run_dir}/", "")
            yield f"{SUPERSEDED}{folder}/: an earlier verdict and its report, which cannot be made again: {words}"


def _one(run_dir: Path, folder: str, inside: list[str], all_: list[str], rules: Rules) -> Iterator[str]:
    if _NAME.fullmatch(folder.removeprefix(SUPERSEDED)) is None:
        yield f"{folder}/: is not named by a time, as the toolkit names these"
    info = read(run_dir / folder).info
    known = {RUN, VERDICT, *FILES.values(), *info.documents}
    for name in inside:
        short = name[len(folder) + 1 :]
        if short not in known:
            yield f"{name}: nothing in the run names it"
        elif short in info.documents and _with_hash([run_dir / name], info.documents[short]) is None:
            yield f"{name}: is not what that run.json says"
    with tempfile.TemporaryDirectory(prefix="elastic-ai-earlier-") as room:
        as_it_was = Path(room) / run_dir.resolve().name
        as_it_was.mkdir()
        places = [run_dir / folder, *(run_dir / other for other in all_ if other != folder), run_dir]
        for name, sha256 in info.documents.items():
            if name.count("/") > 1 or ".." in name or not name.strip("/") or name.startswith("/"):
                raise ConfigError(f"{RUN}: documents: {name!r} is no document of a run")
            source = _with_hash([place / name for place in places], sha256)
            if source is None:
                raise ConfigError(f"{name} of that time is not there")
            _put(source, as_it_was / name)
        for name in (RUN, VERDICT, *FILES.values()):
            if (run_dir / folder / name).is_file():
                _put(run_dir / folder / name, as_it_was / name)
        for name in (RESULTS, REPORT_YML):
            if (run_dir / name).is_file():
                _put(run_dir / name, as_it_was / name)
        for name in (_RAW, BROUGHT):
            if (run_dir / name).is_dir():
                shutil.copytree(run_dir / name, as_it_was / name, copy_function=_link)
        again = read(as_it_was)
        _, fault = judged_again(again)
        made = made_again(again)
        mine = made.rules
        others = [] if mine.odd <= rules.odd else [f"{VERDICT}: judged by rules {mine.line()}"]
        for words in (*([fault] if fault else ()), *made.faults, *made.unchecked, *others, *odd_forms(again)):
            yield f"{folder}/{words.replace(f'{as_it_was}/', '')}"


def _with_hash(places: list[Path], sha256: str) -> Path | None:
    for path in places:
        if path.is_file() and not path.is_symlink() and hashlib.sha256(read_bytes(path)).hexdigest() == sha256:
            return path
    return None


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    _link(str(source), str(target))


def _link(source: str, target: str) -> None:
    """The same file under another name where the disk can, for of a fleet there are hundreds of thousands."""
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)
