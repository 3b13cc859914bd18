from __future__ import annotations

import os

# Before any test imports Keras: ~/.keras/keras.json of the machine must not choose the backend.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
