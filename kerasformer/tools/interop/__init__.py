"""Conversion of models between this package and other libraries, with a folder for each library."""
