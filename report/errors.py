"""The room's one exception type."""


class ReportError(Exception):
    """Something that the user can put right; its text is one line and says what to do."""
