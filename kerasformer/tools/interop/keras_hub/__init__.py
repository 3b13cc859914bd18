"""Conversion of models between this package and KerasHub."""
