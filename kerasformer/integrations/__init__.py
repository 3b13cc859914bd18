"""Plugs for engines that run work on many processes and machines, and for tools that measure models."""
