"""Errors a user can act on. Each message is one sentence: what is wrong, what is allowed."""

import signal


class TimelyError(Exception):
    """Base of every error this project raises on purpose."""


class SkillSetError(TimelyError):
    """A skill set cannot be read or is not valid."""


class PlanError(TimelyError):
    """Generated text is not a plan of the language, or breaks a skill's bounds."""


class SkillFailed(TimelyError):
    """A robot could not do what its plan says; the sentence goes to the model as the reason."""


class RequestError(TimelyError):
    """A request cannot be accepted."""


class ConfigurationError(TimelyError):
    """A parameter, an option or a constructor has an impossible value."""


class InUseError(TimelyError):
    """Another process has what is asked for, and may end: a later try can succeed."""


class EngineError(TimelyError):
    """An engine cannot be made, or cannot run what it was given."""


class EngineSettingError(EngineError, ConfigurationError):
    """An engine can never be made with such values."""


class EngineLost(EngineError):
    """An engine has ended by itself and runs no further step."""


class ModelError(TimelyError):
    """A model cannot be loaded."""


class Interrupted(Exception):
    """The user ended the run; `signum` is the signal."""

    def __init__(self, signum: int) -> None:
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


def first_line(problem: object) -> str:
    """Return the first line of an error's message or of a text; its type if it is empty."""
    return next(iter(str(problem).strip().splitlines()), type(problem).__name__)
