raise ImportError("kerasformer.chat_templates has moved. Expected: kerasformer.tokenization.chat_templates")
