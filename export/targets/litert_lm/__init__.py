"""LiteRT-LM: a `.litertlm` file beside the bundle."""
