"""Conversations: the message tree, its file, exchange formats and search. Imports neither mlx nor textual."""
