"""Satellites: tools that use the core, which imports none of them. Each can be removed with its tests and its extra."""
