"""Errors a user can act on: each says what is wrong, where, and what to do. The command line prints them
without a traceback and leaves with ``exit_code``."""


class VtkitError(Exception):
    """Something the user can put right."""

    exit_code = 1


class RecipeError(VtkitError):
    """A recipe, or arguments, that cannot be run as written. The message lists every problem at once."""

    exit_code = 2


class DataError(VtkitError):
    """A file of the user's that is missing, empty, damaged or of another format than needed."""


class CollapseError(VtkitError):
    """A training or calibration run whose vectors carry no information any more (a gate stopped it)."""
