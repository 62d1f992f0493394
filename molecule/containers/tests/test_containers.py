"""What role docker promises, seen from outside."""

import json


def test_a_container_really_runs(host):
    image = "elastic-ai-molecule"
    needed = "usr/bin/true usr/bin/false lib64/ld-linux-x86-64.so.2 lib/x86_64-linux-gnu/libc.so.6"
    host.check_output(f"tar -C / --dereference -c {needed} | docker import - {image}")
    try:
        assert host.run("docker run --rm --network none %s /usr/bin/true", image).rc == 0
        assert host.run("docker run --rm --network none %s /usr/bin/false", image).rc == 1
    finally:
        host.check_output("docker image rm %s", image)


def test_gpu_servers_have_the_nvidia_runtime_and_nobody_else(host):
    configured = json.loads(host.file("/etc/docker/daemon.json").content_string)
    on_gpu_server = host.check_output("hostname").startswith("gpu")
    assert ("nvidia" in configured["runtimes"]) == on_gpu_server
    known = json.loads(host.check_output("docker info --format '{{json .Runtimes}}'"))
    assert ("nvidia" in known) == on_gpu_server
