"""Keras functions to one TFLite file: traced, converted without weights, fused, stored."""
