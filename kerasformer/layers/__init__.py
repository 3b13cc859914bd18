"""Keras layers of the Transformer, written with keras.ops only."""
