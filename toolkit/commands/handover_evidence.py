"""`toolkit handover evidence`: a signed run in the formats of other tools."""

from __future__ import annotations

import hashlib
from pathlib import Path

import click

from toolkit import answers
from toolkit.command_class import command
from toolkit.commands.options import json_option, kept_runs_option
from toolkit.errors import UsageFault
from toolkit.exits import epilogue
from toolkit.working import working


@command("evidence", epilog=epilogue("handover evidence"))
@click.argument("run", metavar="RUN|BUNDLE")
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FOLDER",
              help="Write the two files into this new folder.")  # fmt: skip
@json_option
@kept_runs_option
def evidence(run: str, out: Path, as_json: bool, runs_dir: Path) -> None:
    """Write the parts and the verdict of a signed run for other tools.

    bom.cdx.json lists each server and its parts as CycloneDX 1.6; verdict.intoto.json is an in-toto statement about
    the manifest that was signed. The same run gives the same bytes. Hashes and signatures of the run are checked first.

    \b
    toolkit handover evidence RUN.zip --out evidence
    """
    from toolkit import rundir
    from toolkit.packed_runs import opened
    from validation.model.load import read_bytes
    from validation.report.documents import read_run
    from validation.signing import MANIFEST
    from validation.signing import evidence_files as files
    from validation.signing.sum_paper import new_folder
    from validation.signing.verify import hashed_run

    if out.exists():
        raise UsageFault(f"{out}: is there already; name another folder with --out")
    with opened(runs_dir, run) as folder, working("reading the run"):
        found = hashed_run(folder)
        if not found.signatures:
            raise UsageFault(f"{run}: nobody has signed it; sign it first: toolkit sign")
        if not found.intact or any(one.state == "bad" for one in found.signatures):
            raise UsageFault(f"{run}: is not as it was signed; toolkit verify names what changed")
        documents, manifest = read_run(folder), hashlib.sha256(read_bytes(folder / MANIFEST)).hexdigest()
        made = {files.BOM: files.bill_of_materials(documents),
                files.STATEMENT: files.verdict_statement(documents, manifest)}  # fmt: skip
    with new_folder(out):
        for name, document in made.items():
            rundir.write_text(out / name, files.written(document).decode())
    if as_json:
        answers.say("evidence", {"files": [str(out / name) for name in made]})
        return
    for name in made:
        click.echo(str(out / name))
