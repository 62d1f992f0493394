#!/usr/bin/env python3
"""Renew docs/sample: the report of a rehearsal that was recorded, and a constructed example of a real site.

    tools/make_sample.py                  write docs/sample; two minutes
    tools/make_sample.py --out FOLDER     write it there
    tools/make_sample.py --record RUN     take a run of the lab as the rehearsal of tests/data/sample, then write

The rehearsal is judged again by today's rules. The constructed example is walked anew (tests/data/walk/machines.py).
Clock and key are fixed, so that the same tree gives the same files with the same fonts. Needs chromium and
poppler-utils.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from cryptography.hazmat.primitives import serialization  # noqa: E402 - after the path
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey  # noqa: E402
from PIL import Image  # noqa: E402

from toolkit import acceptance, prepare_signing, rundir  # noqa: E402
from toolkit.agreement import Agreement  # noqa: E402
from validation.execute import measure, scheduler  # noqa: E402
from validation.run.read import read  # noqa: E402
from validation.signing.sign import sign_run  # noqa: E402

RECORDED = ROOT / "tests/data/sample/rehearsal.tar.xz"
SAMPLE = ROOT / "docs/sample"
CONSTRUCTED = "constructed"
SITE, PROFILE = "c4140-roce40", "elastic-quick"
WALKED = datetime(2026, 11, 26, 9, 0, tzinfo=timezone.utc)
SIGNED = datetime(2026, 11, 26, 12, 0, tzinfo=timezone.utc)
WHO = ("A. Example", "Example AG")
_MADE_ANEW = re.compile(
    r"(report\.(html|pdf|json)|junit\.xml|metrics\.prom|README\.txt|report-pdf\.json|MANIFEST.*|\..*)"
)
_COLOURS = 48


class Fixed(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
        """When the constructed example was walked."""
        return WALKED


@contextlib.contextmanager
def standing_still() -> Iterator[None]:
    """The clock of runs and measurements stands still."""
    then = WALKED.isoformat(timespec="milliseconds")
    clocks = [(module, "utc_now", lambda: then) for module in (measure, scheduler, acceptance)]
    with contextlib.ExitStack() as stack:
        still = SimpleNamespace(monotonic=lambda: 0.0)  # so that nothing took more or less time than before
        for module, name, clock in (*clocks, (rundir, "datetime", Fixed), (scheduler, "time", still)):
            stack.enter_context(mock.patch.object(module, name, clock))
        yield


def record(run: Path) -> None:
    """Keep a run of the lab, without the reports that are made of it."""
    RECORDED.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(RECORDED, "w:xz", preset=9) as archive:
        for path in sorted(run.rglob("*")):
            name = path.relative_to(run)
            if path.is_file() and not _MADE_ANEW.fullmatch(name.parts[0]):
                entry = archive.gettarinfo(path, f"{read(run).info.run}/{name}")
                entry.uid = entry.gid = entry.mtime = 0
                entry.uname = entry.gname = ""
                with path.open("rb") as content:
                    archive.addfile(entry, content)


def rehearsal(work: Path) -> Path:
    """The recorded run, judged by today's rules."""
    with tarfile.open(RECORDED) as archive:
        archive.extractall(work, filter="data")
    (run,) = work.iterdir()
    with standing_still():
        acceptance.rejudge(run, Agreement(None, "", (), {}))
    return run


def constructed(work: Path) -> Path:
    """A walk over the machines of an inventory, whose answers are made up."""
    shutil.copytree(ROOT / "inventories" / SITE, work / SITE)
    before, arguments = Path.cwd(), sys.argv
    os.chdir(work)
    sys.argv = ["toolkit", "validate", "-i", SITE, "--profile", PROFILE, "--format", "json"]
    try:
        with standing_still(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            runpy.run_path(str(ROOT / "tests/data/walk/machines.py"), run_name="__main__")
    except SystemExit as end:
        if end.code not in (0, None):
            raise SystemExit(
                f"the walk over {SITE} ended with {end.code}; run tests/functional/test_named_machines.py"
            ) from None
    finally:
        os.chdir(before)
        sys.argv = arguments
    (run,) = (work / "runs").iterdir()
    return run


def example_key(folder: Path) -> Path:
    """A key that everybody can make, and that is good for nothing else."""
    path = folder / "key"
    key = Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"the sample report's key").digest())
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption())
    )
    return path


def signed(run: Path, key: Path) -> Path:
    """Report and signature of a run; its certificate."""
    prepare_signing.complete(run, lambda words: None)
    certificate = sign_run(run, key, *WHO, moment=SIGNED).certificate
    if certificate is None:
        raise SystemExit("no PDF can be made here; see docs/reference/report.md")
    return certificate


def picture(name: Path, *command: str) -> None:
    """A picture that a program made, with few colours."""
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    image = Image.open(name).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    image.save(name, optimize=True)


def pictures(out: Path, profile: Path) -> None:
    """First page of the PDF and first view on a screen and on a telephone."""
    picture(
        out / "front.png", "pdftoppm", "-singlefile", "-r", "70", "-png", str(out / "report.pdf"), str(out / "front")
    )
    for name, size in (("screen", "1280,1100"), ("phone", "500,900")):
        picture(
            out / f"{name}.png", "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
            f"--user-data-dir={profile}", f"--window-size={size}", f"--screenshot={out / f'{name}.png'}",
            (out / "report.html").resolve().as_uri(),
        )  # fmt: skip


def pages(pdf: Path) -> int:
    """How many pages a PDF has."""
    said = subprocess.run(["pdfinfo", str(pdf)], check=True, capture_output=True, text=True).stdout
    found = re.search(r"^Pages: +(\d+)$", said, re.MULTILINE)
    assert found is not None, said
    return int(found[1])


README = """\
# Sample reports

Written by `tools/make_sample.py`; nothing in them is edited.

## A rehearsal in the lab

Four containers with emulated GPUs on one machine with two processors, links shaped to 1 Gbit/s: what `bin/rehearse`
ends with. It was measured as run {rehearsal}, and judged by the rules of this release.

[report.pdf](report.pdf) ({pages} pages), [report.html](report.html) (download and open it: one file, no network
needed), [certificate](certificate.pdf) of its signature.

![First view on a screen](screen.png)
![First view on a telephone](phone.png)

## A constructed example of a site with GPUs and RoCE

No machine was measured for it: all answers of the nodes are made up, so that every page and chart has something to
show. The run's own data say so: each page and each file carries the words CONSTRUCTED EXAMPLE, and nobody can sign it
as an acceptance.

[report.pdf]({folder}/report.pdf) ({more} pages), [report.html]({folder}/report.html),
[certificate]({folder}/certificate.pdf); for programs [junit.xml]({folder}/junit.xml),
[metrics.prom]({folder}/metrics.prom) and [report.json]({folder}/report.json).

![First page of the constructed example]({folder}/front.png)
"""


def write(out: Path) -> None:
    """Both samples into `out`, which is emptied."""
    lacking = [name for name in ("chromium", "pdftoppm", "ssh-keygen") if shutil.which(name) is None]
    if lacking:
        raise SystemExit(f"{', '.join(lacking)}: not installed; apt-get install chromium poppler-utils openssh-client")
    with tempfile.TemporaryDirectory(prefix="elastic-ai-sample-") as room:
        work = Path(room)
        key, made = example_key(work), work / "out"
        (made / CONSTRUCTED).mkdir(parents=True)
        names = {}
        for folder, make in (("", rehearsal), (CONSTRUCTED, constructed)):
            place, there = work / f"of-{make.__name__}", made / folder
            place.mkdir()
            run = make(place)
            names[make.__name__] = run.name
            shutil.copy(signed(run, key), there / "certificate.pdf")
            for name in ("report.html", "report.pdf"):
                shutil.copy(run / name, there)
            pictures(there, work / "profile")
            if folder:
                for name in ("README.txt", "junit.xml", "metrics.prom", "report.json"):
                    shutil.copy(run / name, there)
                (there / "screen.png").unlink()
                (there / "phone.png").unlink()
        text = README.format(
            rehearsal=names["rehearsal"], pages=pages(made / "report.pdf"),
            more=pages(made / CONSTRUCTED / "report.pdf"), folder=CONSTRUCTED,
        )  # fmt: skip
        (made / "README.md").write_text(text)
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out)


def main() -> int:
    """Exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=SAMPLE, metavar="FOLDER", help="write there, not into docs/sample")
    parser.add_argument("--record", type=Path, metavar="RUN", help="take this run as the recorded rehearsal first")
    asked = parser.parse_args()
    if asked.record is not None:
        record(asked.record)
    write(asked.out)
    print(f"{asked.out}: written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
