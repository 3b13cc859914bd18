"""Writes projects of Android and iOS apps with a bundle in them."""

from kerasformer.tools.app.project import PLATFORMS, check_folder, screen, write

__all__ = ["PLATFORMS", "check_folder", "screen", "write"]
