"""The one error that a user's input can cause: a sentence that names the file, the field and what would be accepted."""


class InputError(Exception):
    """Something the user gave is wrong. The command line prints the sentence and exits with 2, without a traceback."""
