"""Models as SavedModels, and tokenizers in operators of TF Text."""
