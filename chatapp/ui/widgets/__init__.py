"""Widgets around the transcript."""
