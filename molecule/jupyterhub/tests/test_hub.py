"""What role jupyterhub promises: a hub behind TLS that runs without root, and a helper that only its group reaches."""

testinfra_hosts = ["ansible://head"]
PROXY = "elastic-ai-jupyterhub-proxy.service"


def test_the_hub_answers_by_tls(host):
    said = host.check_output("curl --silent --insecure --retry 30 --retry-connrefused https://127.0.0.1:8000/hub/api")
    assert '"6.1.1"' in said
    assert host.run("curl --silent --max-time 5 http://127.0.0.1:8000/hub/api").rc != 0


def test_it_answers_by_a_name_that_no_certificate_has(host):
    ask = "curl --silent --insecure --resolve pool.example.org:8000:127.0.0.1 https://pool.example.org:8000/hub/api"
    assert '"6.1.1"' in host.check_output(ask)


def test_neither_hub_nor_proxy_is_root(host):
    assert host.check_output("systemctl show --value --property User elastic-ai-jupyterhub.service") == "elastic-ai-hub"
    number = host.check_output(f"systemctl show --value --property MainPID {PROXY}")
    assert host.check_output(f"stat --format %u /proc/{number}") != "0"


def test_its_rule_of_sudo_is_whole(host):
    assert host.run("visudo --check --file /etc/sudoers.d/elastic-ai-jupyterhub").rc == 0
    assert host.run("runuser --user elastic-ai-hub -- sudo -n id").rc != 0


def test_the_socket_of_passwords_is_its_groups(host):
    socket = host.file("/run/elastic-ai-login.sock")
    assert (socket.user, socket.group, socket.mode) == ("root", "elastic-ai-login", 0o660)
