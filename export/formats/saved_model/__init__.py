"""Export of models as SavedModels, and of tokenizers as TF Text operators."""
