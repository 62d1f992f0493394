"""Pictures of a long training: three formats with the same pictures, a fixed order, and what is no data is named."""

from __future__ import annotations

import io
import struct
import tarfile
from pathlib import Path

import pytest

from validation.probes import train_tiny
from validation.probes.train_data import BadData, Pictures, look, order, pixels, share, storage_of
from validation.probes.train_records import Unreadable, example, example_of, framed, masked_crc

FEW = 2


def tiny(tmp_path: Path, kind: str) -> Path:
    folder = tmp_path / kind
    train_tiny.make(folder, kind, FEW, 1)
    return folder


def content(pictures: Pictures) -> list[tuple[int, bytes]]:
    return sorted((label, data) for data, label in map(pictures.read, range(len(pictures))))


def test_folders_shards_and_records_have_the_same_pictures(tmp_path: Path) -> None:
    found = {kind: look(str(tiny(tmp_path, kind)), "train", 10) for kind in train_tiny.FORMATS}
    assert {kind: (one.kind, len(one)) for kind, one in found.items()} == {
        kind: (kind, FEW * train_tiny.CLASSES) for kind in train_tiny.FORMATS
    }
    want = content(found["folders"])
    assert len({data for _, data in want}) == len(want)
    assert content(found["tar"]) == want
    assert content(found["tfrecord"]) == want
    assert pixels(want[0][1])[:2] == (32, 32)
    before = (tmp_path / "tar").stat().st_mtime_ns
    train_tiny.make(tmp_path / "tar", "tar", FEW, 1)
    assert (tmp_path / "tar").stat().st_mtime_ns == before, "made once"


def test_shards_may_lie_beside_each_other_as_the_scripts_for_imagenet_leave_them(tmp_path: Path) -> None:
    for split, names in (("train", "train"), ("val", "validation")):
        for part in range(2):
            record = framed(example_of(train_tiny.picture(part, 1), part))
            (tmp_path / f"{names}-{part:05}-of-00002").write_bytes(record)
        assert [look(str(tmp_path), split, 10).read(at)[1] for at in range(2)] == [0, 1]


def test_labels_of_the_scripts_for_imagenet_begin_with_one(tmp_path: Path) -> None:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    plain = example_of(b"P6", 7)
    synset = field(1, field(1, field(1, b"image/class/synset") + field(2, field(1, field(1, b"n01440764")))))
    assert example(plain)["image/class/label"] == [7]
    (tmp_path / "train-00000-of-00001").write_bytes(framed(plain + synset))
    assert look(str(tmp_path), "train", 10).read(0) == (b"P6", 6)


def test_an_example_has_numbers_packed_or_not_and_real_ones_are_left_out() -> None:
    def field(number: int, data: bytes) -> bytes:
        return bytes([number << 3 | 2, len(data)]) + data

    packed = field(1, b"a") + field(2, field(3, field(1, b"\x01\xac\x02")))
    single = field(1, b"b") + field(2, field(3, b"\x08\x05\x08\x06"))
    real = field(1, b"c") + field(2, field(2, field(1, struct.pack("<f", 1.5))))
    message = field(1, b"".join(field(1, entry) for entry in (packed, single, real)))
    assert example(message) == {"a": [1, 300], "b": [5, 6]}
    with pytest.raises(Unreadable):
        example(message[:-3])


def test_the_checksum_is_that_of_the_format() -> None:
    """CRC-32C of 32 zeros is 8a9136aa (RFC 3720, B.4), masked as record_writer.h says."""
    crc = 0x8A9136AA
    assert masked_crc(bytes(32)) == (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def test_the_order_of_an_epoch_is_the_seeds_and_every_rank_has_its_own_part() -> None:
    first = order(1, 0, 100)
    assert sorted(first) == list(range(100))
    assert order(1, 0, 100) == first
    assert order(1, 1, 100) != first != order(2, 0, 100)
    parts = [share(first, rank, 3, 10) for rank in range(3)]
    assert [len(part) for part in parts] == [3, 3, 3], "100 pictures are three steps of 30"
    assert [number for step in range(3) for part in parts for number in part[step]] == first[:90]


def said(folder: Path, split: str = "train", labels: int = 10) -> str:
    with pytest.raises(BadData) as fault:
        look(str(folder), split, labels)
    return str(fault.value)


def test_a_folder_that_is_missing_or_empty_is_told(tmp_path: Path) -> None:
    assert "there is no folder" in said(tmp_path / "none")
    assert "horovod_volumes" in said(tmp_path / "none")
    assert said(tmp_path).endswith("it is empty")
    (tmp_path / "train").mkdir()
    assert said(tmp_path) == f"{tmp_path / 'train'} is empty"
    (tmp_path / "train" / "cat").mkdir()
    (tmp_path / "train" / "cat" / "notes.txt").write_text("x")
    assert said(tmp_path).endswith(f"it has {tmp_path / 'train' / 'cat' / 'notes.txt'}")
    other = tmp_path / "other"
    other.mkdir()
    (other / "images.zip").write_bytes(b"PK")
    assert said(other).endswith("it has images.zip")


def test_a_file_of_another_format_is_named(tmp_path: Path) -> None:
    train = tmp_path / "train"
    train.mkdir()
    (train / "00000.tar.gz").write_bytes(b"\x1f\x8b")
    assert said(tmp_path).startswith(f"{train / '00000.tar.gz'} is of no format that is read here")
    (train / "00000.tar.gz").rename(train / "00000.tar")
    assert said(tmp_path).startswith(f"{train / '00000.tar'} is no tar file that can be read")
    (train / "00000.tar").rename(train / "x.tfrecord")
    assert said(tmp_path) == f"{train / 'x.tfrecord'} ends in the middle of a record, at byte 0"
    (train / "x.tfrecord").write_bytes(bytes(64))
    assert "no TFRecord: the length at byte 0 does not have its checksum" in said(tmp_path)
    whole = framed(example_of(train_tiny.picture(1, 1), 1))
    (train / "x.tfrecord").write_bytes(whole + whole[:-1])
    assert said(tmp_path).endswith(f"in the middle of a record, at byte {len(whole)}")
    (train / "y.tar").write_bytes(b"")
    assert said(tmp_path).startswith(f"{train / 'y.tar'} is no tfrecord file as x.tfrecord beside it is")


def test_pictures_and_labels_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    folder = tiny(tmp_path, "folders")
    assert said(folder, labels=5) == f"{folder} has 10 classes, the network distinguishes 5"
    first = sorted((folder / "train" / "class-0").iterdir())[0]
    first.write_bytes(b"GIF89a")
    assert said(folder) == f"{first} is no picture: neither JPEG, PNG, PPM"
    first.write_bytes(b"P6\n3 3\n255\n12")
    with pytest.raises(BadData, match="head and size"):
        pixels(first.read_bytes())
    shard = tmp_path / "t" / "train"
    shard.mkdir(parents=True)
    with tarfile.open(shard / "a.tar", "w") as made:
        (tmp_path / "p.ppm").write_bytes(train_tiny.picture(0, 0))
        made.add(tmp_path / "p.ppm", "one.ppm")
    assert said(tmp_path / "t").endswith("a.tar: one.ppm has no label; one.cls has to be beside it")
    with tarfile.open(shard / "a.tar", "a") as made:
        (tmp_path / "p.cls").write_text("cat")
        made.add(tmp_path / "p.cls", "one.cls")
    assert said(tmp_path / "t").endswith("a.tar: one.cls has 'cat' and no whole number")


def test_a_file_that_is_cut_while_it_is_read_is_named(tmp_path: Path) -> None:
    pictures = look(str(tiny(tmp_path, "tar")), "train", 10)
    path = Path(pictures.files[0])
    path.write_bytes(path.read_bytes()[:2000])
    with pytest.raises(BadData, match=r"000000\.tar, byte \d+ cannot be read: .*shorter"):
        pictures.read(3)


def test_jpeg_and_png_are_decoded_in_whatever_colours_they_are() -> None:
    image = pytest.importorskip("PIL.Image", reason="this machine has no Pillow")

    def stored(kind: str, colours: str) -> bytes:
        made = io.BytesIO()
        image.new(colours, (5, 3), 255 if colours == "L" else None).save(made, kind)
        return made.getvalue()

    for kind, colours in (("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("PNG", "RGBA"), ("PNG", "P")):
        wide, high, data = pixels(stored(kind, colours))
        assert (wide, high, len(data)) == (5, 3, 45), (kind, colours)
    assert pixels(stored("PNG", "L"))[2] == b"\xff" * 45
    with pytest.raises(BadData, match="cannot be decoded"):
        pixels(stored("JPEG", "RGB")[:200])


MOUNTS = """/dev/nvme0n1p2 / ext4 rw,relatime 0 0
head:/data /data nfs4 rw,vers=4.2 0 0
/dev/nvme1n1 /data/local\\040disk xfs rw 0 0
10.0.0.9:6789:/ /ceph ceph rw 0 0
data@ops:/x /far fuse.own rw 0 0
"""


def test_a_network_disk_is_told_by_its_server(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(MOUNTS)
    assert storage_of("/data/imagenet", mounts) == "nfs4 of head:/data, over the network"
    assert storage_of("/data", mounts) == "nfs4 of head:/data, over the network"
    assert storage_of("/database", mounts) == "ext4"
    assert storage_of("/data/local disk/train", mounts) == "xfs"
    assert storage_of("/ceph/x", mounts) == "ceph of 10.0.0.9:6789:/, over the network"
    assert storage_of("/far", mounts) == "fuse.own of data@ops:/x, over the network"
    (tmp_path / "link").symlink_to("/data/imagenet")
    assert storage_of(str(tmp_path / "link"), mounts) == "nfs4 of head:/data, over the network"
    assert storage_of("/data", tmp_path / "none") == "an unknown file system"


@pytest.mark.parametrize("kind", train_tiny.FORMATS)
def test_no_more_pictures_are_looked_for_than_wanted(tmp_path: Path, kind: str) -> None:
    found = look(str(tiny(tmp_path, kind)), "train", 10, FEW)
    assert FEW <= len(found) < FEW * train_tiny.CLASSES
    assert found.read(len(found) - 1)
