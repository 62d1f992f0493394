"""The documentation site: collects the pages, writes those that are made from code, checks every link, builds."""
