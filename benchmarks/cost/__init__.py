"""What 8 and 4 bits cost real models, in their runtimes and beside other libraries: `python -m benchmarks.cost`."""
