"""Comparison of a bundle with its Keras model: recording of reference answers, comparison, figures; with NumPy only."""
