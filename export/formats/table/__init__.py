"""Export of static embeddings as a table, which needs no runtime."""
