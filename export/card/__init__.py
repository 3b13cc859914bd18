"""The model card of a bundle: description, fidelity, and programs that run it with its names and shapes."""
