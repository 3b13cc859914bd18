raise ImportError("kerasformer.command_options has moved. Expected: kerasformer.basics.command_options")
