"""`toolkit mirror`: what a hall without internet needs, on a medium."""

from __future__ import annotations

import dataclasses
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from toolkit import answers
from toolkit.command_class import group
from toolkit.commands.options import inventory_option, json_option
from toolkit.errors import UsageFault
from toolkit.exits import Exit, epilogue
from toolkit.interruption import term_as_ctrl_c
from toolkit.working import duration, working
from validation.base.counting import number_of

if TYPE_CHECKING:  # loaded when a mirror is planned, not for --help
    from toolkit.mirror.documents import Plan

sources_option = click.option(
    "--sources", multiple=True, metavar="SYSTEM=FILE",
    help="Take the packages of a system, as ubuntu2404, from the entries in this file of apt or dnf. Repeatable.",
)  # fmt: skip
at_option = click.option(
    "--at", multiple=True, metavar="NAME=ADDRESS",
    help="Reach this repository of the inventory, as docker, at another address from here. Repeatable.",
)  # fmt: skip
older_option = click.option(
    "--older",
    is_flag=True,
    help="Take it though a newer one of this site was accepted here; verify with --signers then keeps it as the last.",
)
recorded_option = click.option(
    "--recorded", type=click.Path(path_type=Path, file_okay=False, exists=True), metavar="FOLDER",
    help="Take kernel and GPUs of the nodes from this folder, as preflight recorded them.",
)  # fmt: skip


@group()
def mirror() -> None:
    """Make a mirror for a hall without internet.

    \b
    toolkit mirror plan -i inventories/SITE                          what it would hold, its size and time
    toolkit mirror build /mnt/medium -i inventories/SITE --key KEY   download, sign
    toolkit mirror verify /mnt/medium                                in the hall: every file is the signed one
    toolkit mirror serve /mnt/medium --listen 10.0.0.5:8080 --vars inventories/SITE/group_vars/all/mirror.yml
    """


@mirror.command(epilog=epilogue("mirror plan"))
@inventory_option
@sources_option
@at_option
@recorded_option
@json_option
def plan(inventory: Path, sources: tuple[str, ...], at: tuple[str, ...], recorded: Path | None, as_json: bool) -> None:
    """Print what a mirror for this site holds, its size and time; download no package.

    The roles say which packages they install on the nodes of the inventory, and no node is connected to. apt and dnf
    say what comes with these on an empty system, from this machine's own entries for the system that it runs, and from
    FILE for others. Nothing of this machine is changed.

    \b
    toolkit mirror plan -i inventories/SITE
    toolkit mirror plan -i inventories/SITE --sources ubuntu2404=ubuntu.sources --sources el9=rocky.repo

    Kernel headers and the driver follow kernel and GPUs, which preflight records in the hall:

    \b
    toolkit deploy -i inventories/SITE -- --tags preflight -e preflight_record_to=$PWD/recorded
    """
    made = _planned(inventory, sources, at, recorded)
    if as_json:
        answers.say("mirror-plan", plan_document(made))
    else:
        print_plan(made)
    raise SystemExit(Exit.FAILED if made.missing else Exit.OK)


def _planned(inventory: Path, sources: tuple[str, ...], at: tuple[str, ...], recorded: Path | None) -> Plan:
    from toolkit.mirror import planning
    from toolkit.mirror.sources import by_words, systems

    files = {name: Path(file) for name, file in by_words(sources, "--sources", systems()).items()}
    wanted = planning.Wanted(inventory, files, by_words(at, "--at"), recorded)
    with term_as_ctrl_c(), working("asking the roles which packages they install") as shown:
        return planning.plan(wanted, shown.say)


def plan_document(made: Plan) -> dict[str, Any]:
    """The answer."""
    each = [
        {"name": one.name, "system": one.system, "packages": len(one.packages), "size_bytes": one.size}
        for one in made.repositories
    ]
    lacks = [{key: getattr(one, key) for key in ("system", "role", "name", "version")} for one in made.missing]
    return {
        "site": made.site, "size_bytes": made.size,
        "download_up_to_s": made.size / made.rate_bytes_s if made.rate_bytes_s else None, "repositories": each,
        "wheels": list(made.wheels), "images": list(made.images), "engines": list(made.engines), "missing": lacks,
        "notes": list(made.notes),
    }  # fmt: skip


def print_plan(made: Plan) -> None:
    """Its parts with their sizes, what is missing, and the sum."""
    from toolkit.mirror.documents import size_words

    for one in made.repositories:
        click.echo(f"{size_words(one.size):>9}  {one.system:<11} {one.name}: {number_of(len(one.packages), 'package')}")
    if made.wheels:
        click.echo(f"{'':>9}  {'wheels':<11} {len(made.wheels)} of the toolkit (requirements.lock)")
    for kind, names in (("image", made.images), ("engine", made.engines)):
        for name in names:
            click.echo(f"{'':>9}  {kind:<11} {name}")
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    for gone in made.missing:
        version = f" {gone.version}" if gone.version else ""
        there = f" (there: {', '.join(gone.versions[:3])})" if any(gone.versions) else ""
        click.echo(f"missing: {gone.system}: {gone.name}{version}, which role {gone.role} installs{there}", err=True)
    rate = made.rate_bytes_s
    time = f", up to {duration(made.size / rate)} to download (at the rate of the indices)" if rate else ""
    click.echo(f"all: {size_words(made.size)}{time}")


signers_option = click.option(
    "--signers", type=click.Path(path_type=Path, dir_okay=False, exists=True), metavar="FILE",
    help="Take the signature of these keys alone (allowed signers of OpenSSH).",
)  # fmt: skip
folder_argument = click.argument("folder", type=click.Path(path_type=Path, file_okay=False))


@mirror.command(epilog=epilogue("mirror build"))
@folder_argument
@inventory_option
@click.option("--key", required=True, type=click.Path(path_type=Path), metavar="FILE",
              help="Sign with this OpenSSH key.")  # fmt: skip
@sources_option
@at_option
@recorded_option
def build(folder: Path, inventory: Path, key: Path, **given: Any) -> None:
    """Download what a mirror for this site lacks in FOLDER, and sign all of it.

    Each file is taken only with the hash of the signed index that it came from. What FOLDER has already is not
    downloaded again: a build that was broken off goes on, and a later one brings what is new. Until all is there the
    mirror is not signed, and nobody trusts it.

    \b
    toolkit mirror build /mnt/medium -i inventories/SITE --key ~/.ssh/id_ed25519

    Tools: apt-utils for systems with apt; dnf, its plugin download and createrepo-c for EL; gnupg; skopeo and
    docker-registry for images.
    """
    from toolkit.mirror import building
    from toolkit.mirror.documents import size_words
    from validation.signing import ssh

    found = ssh.read_key(key.expanduser())
    made = _planned(inventory, **given)
    print_plan(made)
    if made.missing:
        click.echo("nothing was built: the mirror would lack what is missing above", err=True)
        raise SystemExit(Exit.FAILED)
    began = time.monotonic()
    try:
        with term_as_ctrl_c(), working("downloading") as shown:
            built = building.build(made, folder, found, shown.say)
    except KeyboardInterrupt:
        click.echo("interrupted; what came stays, and the same command goes on; the mirror is not signed", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    for note in built.notes:
        click.echo(f"note: {note}", err=True)
    came = f"{number_of(built.came, 'file')} came, {size_words(built.size)}"
    click.echo(f"built {folder} in {duration(time.monotonic() - began)}: {came}; indices written: {built.published}")
    click.echo(f"packages are signed by {built.fingerprint}, all files by {found.fingerprint}")


@mirror.command(epilog=epilogue("mirror verify"))
@folder_argument
@signers_option
@older_option
@json_option
def verify(folder: Path, signers: Path | None, older: bool, as_json: bool) -> None:
    """Check the signature of a mirror, and every file against it.

    A file that is damaged, missing, of another release or added is named. With --signers a mirror without a fault is
    kept as the last one of its site on this machine; one that was signed before it is a fault.

    \b
    toolkit mirror verify /mnt/medium --signers signers
    """
    from toolkit.mirror import accepted, manifest, verifying
    from toolkit.mirror.documents import size_words
    from toolkit.mirror.room import sha256

    try:
        with term_as_ctrl_c(), working("reading the mirror") as shown:
            checked = verifying.verify(folder, signers, shown.now)
    except KeyboardInterrupt:
        click.echo("interrupted before every file was read: nothing is known of this mirror; run it again", err=True)
        raise SystemExit(Exit.INTERRUPTED) from None
    said, listed = checked.said, sha256(folder / manifest.MANIFEST)
    before = "" if older else accepted.older(said, listed)
    faults = [*checked.faults, *([before] if before else [])]
    if signers is not None and not faults:
        accepted.accept(said, listed)
    if as_json:
        answers.say("mirror", {
            "folder": str(folder), "site": said.get("site"), "signed": said.get("signed"), "key": said.get("key"),
            "signature": checked.signature, "files": checked.files, "size_bytes": checked.size,
            "faults": faults,
        })  # fmt: skip
        raise SystemExit(Exit.FAILED if faults else Exit.OK)
    for fault in faults:
        click.echo(fault, err=True)
    click.echo(f"{number_of(checked.files, 'file')}, {size_words(checked.size)}; for {said.get('site', '?')}")
    click.echo(f"signed {said.get('signed', '?')} with {said.get('key', '?')}: {checked.signature}")
    click.echo("every file is the signed one" if not checked.faults else number_of(len(checked.faults), "fault"))
    raise SystemExit(Exit.FAILED if faults else Exit.OK)


@mirror.command(epilog=epilogue("mirror serve"))
@folder_argument
@click.option("--listen", default="0.0.0.0:8080", show_default=True, metavar="ADDRESS:PORT",
              help="Serve at this address.")  # fmt: skip
@click.option("--url", metavar="URL", help="Give nodes this address.  [default: made from --listen]")
@click.option("--vars", "target", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Write the variables for the inventory into this file.  [default: print them]")  # fmt: skip
@click.option("--certificate", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Serve by HTTPS with this certificate (PEM).")  # fmt: skip
@click.option("--private-key", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Use this private key for HTTPS (PEM).")  # fmt: skip
@signers_option
@older_option
def serve(folder: Path, listen: str, **given: Any) -> None:
    """Serve a mirror in the hall, and write what the inventory needs for it.

    With the variables every repository of the nodes is the mirror's, and other entries of apt and dnf are put out of
    action until role repos is undone. Ends with Ctrl-C. Only files that are signed are served; of these the plan and
    the keys, which the inventory gets, are read here, and all of them by toolkit mirror verify.

    \b
    toolkit mirror serve /mnt/medium --signers signers --listen 10.0.0.5:8080 \\
        --vars inventories/SITE/group_vars/all/mirror.yml
    """
    from toolkit.mirror import accepted, images, manifest, medium, serving
    from toolkit.mirror.room import sha256
    from validation.base.files import replace

    where = serving.place(listen, given["certificate"], given["private_key"])
    if where.private_key is not None:
        medium.refuse_inside(where.private_key, folder)
    signed = manifest.read(folder, given["signers"])
    if not signed.good:
        raise UsageFault(f"{folder}: its signature is not good: {signed.words}; nothing is served")
    before = "" if given["older"] else accepted.older(signed.said, sha256(folder / manifest.MANIFEST))
    if before:
        raise UsageFault(f"{folder}: {before}; nothing is served")
    serving.refuse_changed(folder, signed)
    whose = signed.words if given["signers"] else "whose key that is was not checked: name --signers"
    said = signed.said
    click.echo(
        f"for {said.get('site', '?')}, signed {said.get('signed', '?')} with {said.get('key', '?')}; {whose}", err=True
    )
    if where.host in ("0.0.0.0", "::") and not given["url"]:  # noqa: S104 - refused, not listened at
        raise UsageFault("--listen: name the address at which nodes reach this machine, or give it with --url")
    url = given["url"] or f"{where.scheme}://{listen}"
    made = serving.read_plan(folder)
    door = serving.image_door(where, url) if made.images and not images.missing(made.images, folder) else None
    if door is not None and door.certificate is None:
        note = "images are not served, for Docker takes them by HTTPS alone: give --certificate and --private-key"
        click.echo(f"note: {note}", err=True)
        door = None
    text = serving.variables(folder, made, signed.said.get("packages-key", ""), url, door.address if door else "")
    try:
        server = serving.Server(where, folder, signed.manifest)
    except OSError as fault:
        raise UsageFault(f"--listen {listen}: {fault.strerror or fault}; choose another address or port") from None
    if given["target"]:
        given["target"].parent.mkdir(parents=True, exist_ok=True)
        replace(given["target"], text.encode())
        click.echo(f"wrote {given['target']}")
    else:
        click.echo(text, nl=False)
    with term_as_ctrl_c(), suppress(KeyboardInterrupt), server, ExitStack() as stack:
        if door is not None:
            stack.enter_context(
                images.registry(folder / images.FOLDER, dataclasses.replace(door, host=where.host), writes=False)
            )
            click.echo(f"serving its images at {door.address}", err=True)
        click.echo(f"serving {folder} at {url}; Ctrl-C ends it", err=True)
        server.serve_forever()
