"""Integrations with the engines and tools that people already use; each needs the tool's own package."""
