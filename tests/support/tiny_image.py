"""A container image of one small file, as an OCI layout on disk."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path


def tiny_image(folder: Path, words: str, machines: tuple[str, ...] = ()) -> Path:
    """An OCI layout. With machines it is a list of manifests, one for each."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def kept(data: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(data)}

    def manifest(machine: str) -> dict[str, object]:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            entry = tarfile.TarInfo("words")
            entry.size = len(words.encode())
            tar.addfile(entry, io.BytesIO(words.encode()))
        plain = packed.getvalue()
        layer = kept(gzip.compress(plain, mtime=0), "layer.v1.tar+gzip")
        diff = f"sha256:{hashlib.sha256(plain).hexdigest()}"
        made = {"architecture": machine, "os": "linux", "config": {}, "rootfs": {"type": "layers", "diff_ids": [diff]}}
        config = kept(json.dumps(made).encode(), "config.v1+json")
        document = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}
        return kept(json.dumps({**document, "config": config, "layers": [layer]}).encode(), "manifest.v1+json")

    top = manifest("amd64")
    if machines:
        listed = [{**manifest(one), "platform": {"architecture": one, "os": "linux"}} for one in machines]
        document = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": listed}
        top = kept(json.dumps(document).encode(), "index.v1+json")
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [top]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    return folder
