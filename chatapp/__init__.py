"""chatapp: a terminal chat for local language models that shows their doubt."""

__version__ = "0.1.0"
