"""Keras models to verified on-device bundles."""
