"""The model card of a bundle: what it is, how faithful it is, and programs that run it, with its names and shapes."""
