"""The screens: the chat, and those that stand over it for a moment."""
