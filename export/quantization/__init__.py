"""Quantization: recipes, calibration, and the search for a mix of storage types."""
