"""The engine process: loads a model, owns the KV cache and decodes. Never imports textual."""
