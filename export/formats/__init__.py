"""Formats of model files: one package for each, and their registry."""
