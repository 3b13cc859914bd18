"""Builds and serves a web page that runs bundles in the browser."""
