"""What the actions of `chatapp.ui.keymap` do: a class for each group, a method for each action.

A method takes the argument of the slash command (empty where a key was pressed) and refuses by raising `Refused`.
"""
