"""The room's one exception type, and the wording of others' exceptions."""


class TrainError(Exception):
    """Something that the user can put right; its text is one line and says what to do."""


def first_line(problem: BaseException) -> str:
    """What an exception of someone else's says, as far as it fits into one line; its type if it says nothing."""
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:200]
