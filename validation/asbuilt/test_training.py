"""Distributed training: what role horovod promises."""

from __future__ import annotations

import json

from validation.asbuilt.site import Host, Site, deaf, not_applicable

ETC = "/etc/elastic-ai/training"
CONTAINER = "elastic-ai-training"


def test_container_runs_and_is_enabled(host: Host, site: Site) -> None:
    """On the head, where training is launched, and on the servers."""
    site.only_with("horovod")
    unit = host.service(CONTAINER)
    assert unit.is_running, f"{CONTAINER} does not run"
    assert unit.is_enabled, f"{CONTAINER} is not enabled"


def test_container_listens_on_the_fabric(host: Host, site: Site) -> None:
    """Ranks are started over it."""
    site.only_with("horovod")
    if not site.ports:
        not_applicable("the inventory declares no fabric port")
    lost = deaf(host, site.wants("horovod_ssh_port"), *(port["address"].partition("/")[0] for port in site.ports))
    assert not lost, f"nothing listens at {', '.join(lost)}"


def test_private_key_is_the_training_users(host: Host, site: Site) -> None:
    """Whoever has it starts programs on every node."""
    site.only_with("horovod")
    key, user = host.file(f"{ETC}/id_ed25519"), str(site.wants("horovod_user"))
    assert key.exists, f"{key.path} is not there"
    assert (key.user, key.mode) == (user, 0o600), f"{key.path} is {key.user}'s, mode {key.mode:o}"


def test_volumes_are_mounted(host: Host, site: Site) -> None:
    """The folders of the node that the inventory gives to training, and the toolkit's own, are in the container."""
    site.only_with("horovod")
    mounts = json.loads(host.check_output(f"docker inspect --format '{{{{json .Mounts}}}}' {CONTAINER}"))
    found = {(mount["Source"], mount["Destination"]) for mount in mounts if mount["Type"] == "bind"}
    wanted = {(ETC, ETC), *((v.split(":")[0], v.split(":")[1]) for v in site.wants("horovod_volumes") if ":" in v)}
    gone = sorted(f"{source} at {target}" for source, target in wanted - found)
    assert not gone, f"not mounted: {', '.join(gone)}"


def test_image_has_the_wanted_version(host: Host, site: Site) -> None:
    """What runs, by the container's own record; an image of the site's own is what the site says."""
    site.only_with("horovod")
    image = str(site.wants("horovod_image"))
    if image:
        running = host.check_output("docker inspect --format '{{.Config.Image}}' " + CONTAINER)
        assert running == image, f"the image is {running}, wanted {image}"
        return
    wanted = site.version("horovod_version", "horovod")
    program = "import horovod; print(horovod.__version__)"
    found = host.check_output("/usr/local/bin/elastic-ai-training-exec python3 -c %s", program)
    assert found == wanted, f"horovod is {found}, wanted {wanted}"


def test_registry_serves_where_the_image_is_made(host: Host, site: Site) -> None:
    """The head has it where the inventory names no image."""
    site.only_with("horovod")
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    if site.wants("horovod_image"):
        not_applicable("horovod_image names an image elsewhere")
    assert host.service("docker-registry").is_running, "docker-registry does not run"
    lost = deaf(host, site.wants("horovod_registry_port"), str(site.get("ansible_host", "*")))
    assert not lost, f"nothing listens at {', '.join(lost)}"


def test_no_compiler_came_to_the_node(host: Host, site: Site) -> None:
    """The image is built in containers."""
    site.only_with("horovod")
    if site.in_group("gpu_servers") and not site.virtual:
        not_applicable("a server with GPUs builds the driver's kernel modules")
    there = [name for name in ("g++", "openmpi-bin") if host.package(name).is_installed]
    assert not there, f"installed: {', '.join(there)}"
