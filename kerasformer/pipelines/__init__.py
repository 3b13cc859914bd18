"""Text in, result out, over any engine."""
