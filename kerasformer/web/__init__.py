"""A folder that runs bundles in a browser: the page, the bundles, and the runtimes that npm packages hold."""
