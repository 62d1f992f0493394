"""What role repos promises, seen from outside: real apt, real signatures, packages of stand-ins."""

NAMES = ("cuda", "nvidia-container-toolkit", "docker", "doca")


def test_apt_reads_every_repository_with_its_own_key(host):
    for name in NAMES:
        source = host.file(f"/etc/apt/sources.list.d/elastic-ai-{name}.sources").content_string
        assert f"Signed-By: /etc/apt/keyrings/elastic-ai-{name}.asc" in source
    update = host.run("apt-get update -o APT::Update::Error-Mode=any")
    assert update.rc == 0, update.stderr
    assert "W:" not in update.stderr


def test_packages_come_from_the_repositories_and_say_that_they_are_stand_ins(host):
    for package in ("datacenter-gpu-manager-4-core", "nvidia-container-toolkit", "docker-ce", "doca-ofed"):
        shown = host.check_output("apt-cache show %s", package)
        assert "stand-in of the Elastic AI lab" in shown
    assert "Version: 1:4.6.0-1" in host.check_output("apt-cache show datacenter-gpu-manager-4-core")


def test_the_driver_stays_with_the_distribution_although_the_vendor_has_a_newer_one(host):
    policy = host.check_output("apt-cache policy libcuda1")
    candidate = next(line for line in policy.splitlines() if "Candidate:" in line)
    assert "550." in candidate, policy


def test_an_older_entry_of_the_same_repository_is_out_of_action(host):
    text = host.file("/etc/apt/sources.list.d/docker.list").content_string
    assert all(line.startswith("#") for line in text.splitlines())
