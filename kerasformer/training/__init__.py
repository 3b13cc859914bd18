"""Training of models of the zoo with `fit`: data, losses, optimizers and callbacks."""
