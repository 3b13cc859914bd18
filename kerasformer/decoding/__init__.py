"""Generation in NumPy: protocols, logits rules, samplers, the loop, beams."""
