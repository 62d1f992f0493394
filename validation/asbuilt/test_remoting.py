"""GPUs over the network: what roles remoting_server and remoting_client promise."""

from __future__ import annotations

from validation.asbuilt.site import Host, Site, not_applicable

UNITS = ("elastic-ai-lease-firewall", "elastic-ai-lease-sweep.timer")


def test_ports_of_leases_are_closed_and_the_sweep_runs(host: Host, site: Site) -> None:
    """Nobody reaches a GPU without a lease, and none outlives its lease."""
    site.only_with("remoting_server")
    off = [name for name in UNITS if not host.service(name).is_running or not host.service(name).is_enabled]
    assert not off, f"does not run, or is not enabled: {', '.join(off)}"
    assert "drop" in host.check_output("nft list table inet elastic_ai_lease"), "the firewall drops nothing"


def test_commands_of_leases_are_there(host: Host, site: Site) -> None:
    """Users of every machine of the pool have them."""
    site.only_with("remoting_client")
    said = host.run("toolkit run --help")
    assert said.rc == 0, f"toolkit run: {said.stderr.strip() or said.stdout.strip()}"


def test_the_pool_answers(host: Host, site: Site) -> None:
    """What users would see of it, where the site has an engine."""
    site.only_with("remoting_client")
    if not site.get("remoting_engine_artifact") and not site.get("remoting_engine_torch_artifact"):
        not_applicable("the inventory names no remoting engine (remoting_engine_artifact)")
    said = host.run("toolkit gpus")
    assert said.rc == 0, f"toolkit gpus: {said.stderr.strip() or said.stdout.strip()}"
