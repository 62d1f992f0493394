"""A site as built: its checks, and what site.yml would change."""
