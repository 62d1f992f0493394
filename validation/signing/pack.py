"""Making the bundle of a run: what goes in, and what keeps it from going out."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from validation.model import RunInfo
from validation.model.load import ConfigError, load_json
from validation.signing import MANIFEST, SIGNATURES, is_signed
from validation.signing.bundle import write_bundle
from validation.signing.manifest import compare, entries, make_manifest, read_manifest
from validation.signing.secrets import refuse_secrets
from validation.signing.sign import allowed_before, check_data, prepare


@dataclass(frozen=True)
class Bundled:
    """A bundle: its file, size, how many files it holds, and who has signed (names of statements)."""

    path: Path
    size_bytes: int
    files: int
    signatures: tuple[str, ...]
    allowed: tuple[str, ...]


def bundle_run(run_dir: Path, target: Path | None = None, allowed: Iterable[str] = ()) -> Bundled:
    """Put everything of a run but dot files into one ZIP file (default: RUN.zip beside the run directory).

    The reports must be there already. ConfigError where the run changed since it was signed, where verdict or report do
    not follow from its data, where something looks like a secret, or where the file cannot be written.
    """
    info = load_json(run_dir / "run.json", RunInfo)
    target = run_dir.resolve().parent / f"{info.run}.zip" if target is None else target
    if target.is_dir():
        target = target / f"{info.run}.zip"
    if target.resolve().is_relative_to(run_dir.resolve()):
        raise ConfigError(f"{target}: lies in the run itself, and would change it; give another place: -o FILE")
    kept = refuse_secrets(run_dir, {*allowed, *allowed_before(run_dir)})
    files: dict[str, Path | bytes] = {}
    if is_signed(run_dir):
        words = compare(run_dir, read_manifest(run_dir)).words()
        if words:
            raise ConfigError(f"{run_dir}: was changed since it was signed: {words[0]}; see: toolkit verify {run_dir}")
        files[MANIFEST] = run_dir / MANIFEST
    else:
        _, again = check_data(run_dir)
        prepare(run_dir, again.rules)
        files[MANIFEST] = make_manifest(run_dir).encode()
    files |= {name: run_dir / name for name, _ in entries(run_dir)}
    signatures = sorted(path for path in (run_dir / SIGNATURES).glob("*") if not path.name.startswith("."))
    files |= {f"{SIGNATURES}/{path.name}": path for path in signatures}
    size = write_bundle(target, info.run, files)
    names = tuple(path.name for path in signatures if path.suffix == ".txt")
    return Bundled(target, size, len(files), names, kept)
