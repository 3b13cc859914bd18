"""The public names of `kerasformer.tools.testing`, whose path was shorter."""

from kerasformer.tools.testing import *  # noqa: F403
