"""Read by JupyterHub (role jupyterhub). What the site chose is in settings.json."""

import json
import os
import sys
from pathlib import Path

SETTINGS = Path(os.environ["ELASTIC_AI_HUB_SETTINGS"])
sys.path.insert(0, "/usr/lib/elastic-ai/jupyterhub/hub")
from choices import Offer  # noqa: E402
from login import PoolLogin  # noqa: E402
from spawner import PoolSpawner  # noqa: E402

c = get_config()  # noqa: F821 - traitlets gives it
site = json.loads(SETTINGS.read_text())

c.JupyterHub.authenticator_class = PoolLogin
c.PoolLogin.groups = site["groups"]
c.PoolLogin.users = site["users"]
c.Authenticator.allow_all = True  # of those that PoolLogin lets in
c.JupyterHub.spawner_class = PoolSpawner
c.PoolSpawner.offer = Offer.read(SETTINGS.with_name("offer.json"))
c.Spawner.start_timeout = site["start_timeout_s"]
c.Spawner.http_timeout = 120
c.Spawner.apply_user_options = lambda spawner, options: None  # they are in the order
c.Spawner.default_url = "/lab"
c.JupyterHub.concurrent_spawn_limit = 0  # those that wait in the queue are not the hub's load
# A hub that ends or is killed leaves notebooks and the proxy as they are, and the next one takes them over.
c.JupyterHub.cleanup_servers = False
c.JupyterHub.cleanup_proxy = False
# In seconds. Each time the routes of the proxy are looked at too: one that was restarted has none, and answers 404.
c.JupyterHub.last_activity_interval = 10
c.JupyterHub.bind_url = f"https://:{site['port']}"
# "" is one name for all: a notebook's page then has the same origin as those of other users.
c.JupyterHub.subdomain_host = site["subdomain_host"]
c.JupyterHub.hub_bind_url = f"https://127.0.0.1:{site['hub_port']}"
c.ConfigurableHTTPProxy.should_start = False
c.ConfigurableHTTPProxy.api_url = f"https://127.0.0.1:{site['proxy_api_port']}"
c.ConfigurableHTTPProxy.auth_token = os.environ.get("CONFIGPROXY_AUTH_TOKEN", "")
# Between proxy, hub and notebook servers: TLS with certificates on both sides.
c.JupyterHub.internal_ssl = True
c.JupyterHub.internal_certs_location = site["certificates"]
c.JupyterHub.cookie_secret_file = f"{site['data']}/cookie_secret"
c.JupyterHub.db_url = f"sqlite:///{site['data']}/hub.sqlite"
c.JupyterHub.log_level = "WARN"
c.JupyterHub.tornado_settings = {
    "headers": {
        "Content-Security-Policy": "frame-ancestors 'none'",
        "Referrer-Policy": "same-origin",
        "X-Content-Type-Options": "nosniff",
    },
    # Of _xsrf too, which JupyterHub sends without these.
    "cookie_options": {"secure": True, "samesite": "Lax"},
}
