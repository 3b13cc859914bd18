"""Models of KerasHub, to and from models of this package."""
