"""The Textual user interface. Never imports mlx, mlx_lm or transformers."""
