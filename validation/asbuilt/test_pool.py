"""The scheduler: what role slurm promises."""

from __future__ import annotations

from validation.asbuilt.site import Host, Site, not_applicable

HEAD = ("munge", "mariadb", "slurmdbd", "slurmctld", "elastic-ai-pool-sync.timer")


def _scheduled(site: Site) -> None:
    site.only_with("slurm")
    if dict(site.wants("slurm_pool")).get("scheduler", "slurm") != "slurm":
        not_applicable("slurm_pool names another scheduler")


def _own(site: Site) -> None:
    """Daemons and key of a Slurm of the site's own, which the pool joins, are its administrator's."""
    _scheduled(site)
    if dict(site.wants("slurm_pool")).get("join"):
        not_applicable("slurm_pool.join: daemons and key are those of a Slurm of the site's own")


def _off(host: Host, *units: str) -> str:
    """What of the units does not run, or is not enabled."""
    wrong = [f"{name} does not run" for name in units if not host.service(name).is_running]
    wrong += [f"{name} is not enabled" for name in units if not host.service(name).is_enabled]
    return "; ".join(wrong)


def test_controller_and_accounting_run(host: Host, site: Site) -> None:
    """On the head alone."""
    _own(site)
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    off = _off(host, *HEAD)
    assert not off, off


def test_node_daemon_runs(host: Host, site: Site) -> None:
    """On each GPU server."""
    _own(site)
    if site.is_head:
        not_applicable("it is the head, which gives out the GPUs of others")
    off = _off(host, "munge", "slurmd")
    assert not off, off


def test_credentials_run_and_their_key_is_kept_from_users(host: Host, site: Site) -> None:
    """Whoever has the key is any user of the pool."""
    _own(site)
    off = _off(host, "munge")
    assert not off, off
    key = host.file("/etc/munge/munge.key")
    assert key.exists, "/etc/munge/munge.key is not there"
    assert (key.user, key.mode) == ("munge", 0o400), f"/etc/munge/munge.key is {key.user}'s, mode {key.mode:o}"


_LOST = ("down", "unknown", "inval", "error", "fail", "future", "external")
"""How sinfo's states begin of a node that the controller cannot use, for another reason than an operator's drain."""


def test_every_gpu_server_serves(host: Host, site: Site) -> None:
    """As the controller sees them; one that an operator has drained is no fault."""
    _scheduled(site)
    if not site.is_head:
        not_applicable(f"the head is {site.head}")
    lines = host.check_output("sinfo --noheader --Node --format '%N %T'").splitlines()
    states = {line.split()[0]: line.split()[1] for line in lines if len(line.split()) == 2}
    wanted = {name.partition(".")[0] for name in site.hosts("gpu_servers")} - {site.head}
    lost = [f"{name} is {states.get(name, 'not known')}" for name in sorted(wanted)
            if states.get(name, "*")[-1] == "*" or states[name].startswith(_LOST)]  # fmt: skip
    assert not lost, "; ".join(lost)
