"""The formats of model files: one folder for each, and the registry of all."""
