"""Which fabric is under test: --fabric, the inventory's own, and what contradicts it."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolkit.errors import UsageFault
from toolkit.fabric_choice import choose_fabric
from toolkit.inventory import DeclaredFabric, PortMtu
from validation.base.errors import ConfigError
from validation.rules.fabric import read_fabric

PORT = "{{interface: fab0, address: 10.0.0.1/24, mtu: {mtu}}}"


def inventory(folder: Path, fabric: str = "", mtu: int = 9000) -> Path:
    (folder / "group_vars" / "all").mkdir(parents=True)
    (folder / "group_vars/all/fabric.yml").write_text(f"---\n# ours\n{fabric}\nfabric_mtu: {mtu}\n")
    hosts = f"all:\n  hosts:\n    gpu1:\n      fabric_ports:\n        - {PORT.format(mtu=mtu)}\n"
    (folder / "hosts.yml").write_text(hosts)
    return folder


def declared(name: str | None, *mtus: PortMtu) -> DeclaredFabric:
    return DeclaredFabric(name, "gpu1", mtus)


def test_the_inventorys_fabric_is_the_default_and_may_be_said_again(tmp_path: Path) -> None:
    site = inventory(tmp_path, "fabric: roce100")
    assert choose_fabric(None, site, declared("roce100")).fabric.name == "roce100"
    assert choose_fabric(read_fabric("roce100"), site, declared("roce100")).fabric.name == "roce100"
    assert choose_fabric(read_fabric("tcp10"), site, declared(None)).fabric.name == "tcp10"
    with pytest.raises(UsageFault):
        choose_fabric(None, site, declared(None))


def test_a_sites_own_profile_is_found_from_the_inventorys_folder(tmp_path: Path) -> None:
    site = inventory(tmp_path, "fabric: own.yml")
    (site / "own.yml").write_text(read_fabric("tcp10").text.replace("name: tcp10", "name: own"))
    found = choose_fabric(None, site, declared("own.yml"))
    assert (found.fabric.name, found.origin, found.source.path) == ("own", "site", site / "own.yml")
    with pytest.raises(ConfigError) as caught:
        choose_fabric(None, site, declared("rose40"))
    assert str(caught.value).startswith(f"{site}/group_vars/all/fabric.yml:3: fabric: ")


def test_another_name_is_refused_with_both_lines(tmp_path: Path) -> None:
    site, asked = inventory(tmp_path, "fabric: roce100"), read_fabric("tcp10")
    with pytest.raises(UsageFault) as caught:
        choose_fabric(asked, site, declared("roce100"))
    assert f"{site}/group_vars/all/fabric.yml:3: " in str(caught.value)
    assert f"{asked.source.path}:1: " in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "line"),
    [(("fabric_mtu",), "group_vars/all/fabric.yml:4"), (("fabric_ports", 0, "mtu"), "hosts.yml:5")],
)
def test_another_mtu_is_refused_with_both_lines(tmp_path: Path, variable: tuple[int | str, ...], line: str) -> None:
    site, asked = inventory(tmp_path, mtu=1500), read_fabric("tcp10")
    with pytest.raises(UsageFault) as caught:
        choose_fabric(asked, site, declared(None, PortMtu("gpu1", "ethernet", 1500, variable)))
    assert f"{site}/{line}: " in str(caught.value)
    assert f"{asked.source.path}:7: " in str(caught.value)
    # an InfiniBand port is none of this fabric's: that is refused by its link layer
    choose_fabric(asked, site, declared(None, PortMtu("gpu1", "infiniband", 4092, variable)))
    choose_fabric(asked, site, declared(None, PortMtu("gpu1", "ethernet", 9000, variable)))
