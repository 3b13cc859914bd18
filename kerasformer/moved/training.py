"""The public names of `kerasformer.tools.training`, whose path was shorter."""

from kerasformer.tools.training import *  # noqa: F403
