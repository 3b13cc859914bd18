"""Plugs for the tools that people already use; each needs the tool's own package."""
