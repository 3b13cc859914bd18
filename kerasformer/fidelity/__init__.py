"""How faithful a bundle is to its Keras model: recording answers, comparing with them, the figures. NumPy alone."""
