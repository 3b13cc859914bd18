"""Models of other libraries, to and from models of this package: one folder for each library."""
