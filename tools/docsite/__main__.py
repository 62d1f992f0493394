"""`python -m tools.docsite`: build the documentation site, strict. bin/docs prepares the environment first.

Exit status 1 with the faults on stderr: a link that leads to nothing, an anchor that no heading has, an address outside
of a wrong form, a page without a place in the navigation, something that a page loads from outside, or whatever
zensical objects to.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from tools.docsite import links, navigation, outside, sources

OUT = sources.ROOT / "build/docs"
#: What zensical writes for a web server, with addresses from its root.
FOR_SERVERS = ("404.html", "sitemap.xml", "sitemap.xml.gz")


def check() -> list[str]:
    """What is wrong with the links of the pages as they stand in the tree."""
    places = sources.pages()
    pages = sources.read([*places, *sources.ALSO])
    return list(links.faults(pages, lambda path: (sources.ROOT / path).exists()))


def build(out: Path, work: Path) -> list[str]:
    """Build the site into `out` by way of an empty folder; what is wrong with it, nothing where it was built."""
    (work / "pages").mkdir(parents=True)
    sources.collect(work / "pages")
    config, faults = navigation.config((sources.ROOT / "mkdocs.yml").read_text(encoding="utf-8"), work / "pages")
    if faults:
        return faults
    (work / "mkdocs.yml").write_text(config, encoding="utf-8")
    program = Path(sysconfig.get_path("scripts")) / "zensical"
    if not program.is_file():
        return [f"{program} is missing: it needs Python 3.11 or newer, and comes with requirements-test.lock"]
    command = [str(program), "build", "--strict", "--clean", "--config-file", str(work / "mkdocs.yml")]
    done = subprocess.run(command, cwd=work, capture_output=True, text=True, check=False)
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    if done.returncode != 0 or "Warning:" in said or not (work / "site/index.html").is_file():
        return [f"zensical ended with {done.returncode}:", *said.splitlines()]
    for name in FOR_SERVERS:
        (work / "site" / name).unlink(missing_ok=True)
    if loads := outside.faults(work / "site"):
        return loads
    if out.is_dir():
        shutil.rmtree(out)
    shutil.copytree(work / "site", out)
    return []


def main() -> int:
    """Build the site, or say what is wrong."""
    parser = argparse.ArgumentParser(prog="bin/docs", description="Build the documentation site into one folder.")
    parser.add_argument("--out", type=Path, default=OUT, help="folder of the site, made anew (default: build/docs)")
    out = parser.parse_args().out
    if out.exists() and not (out / "index.html").is_file() and (not out.is_dir() or any(out.iterdir())):
        print(f"error: {out} holds something else than the site; name another folder", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="elastic-ai-docs-") as work:
        faults = check() or build(out, Path(work))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        print(f"error: the documentation site was not built: {len(faults)} lines above", file=sys.stderr)
        return 1
    pages = sum(1 for _ in out.rglob("*.html"))
    print(f"{pages} pages: {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
