"""The documentation site: the pages of the repository and those that are made from the code, built by Sphinx."""
