"""Settings of a cloud: where it is, and how long it may take."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from timely_llm.cloud.contract import Cloud
from timely_llm.core.arguments import number, whole
from timely_llm.core.clock import Clock
from timely_llm.core.errors import ConfigurationError
from timely_llm.core.requirements import need
from timely_llm.core.text import name_problem, quoted

LONGEST_S = 3600.0
"""Longest time that a question may be given, seconds."""
MOST_QUESTIONS = 1024
"""Most questions that may be open at once."""
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY = re.compile(r"[!#-&(-\[\]-~]{1,4096}")


@dataclass(frozen=True)
class CloudSettings:
    """Where a cloud is, and the bounds of its questions; parameters have the prefix `cloud_`.

    Attributes:
        url: base of an OpenAI-compatible API, such as https://api.example.com/v1; a bare host gets
            the path /v1.
        model: name of the model, as the cloud lists it.
        key_variable: name of the environment variable that holds the key; empty: no key is sent.
        timeout_s: longest time to the end of an answer, retries included, seconds.
        first_token_s: longest time to an answer's first word, retries included, seconds.
        silence_s: longest time between two words of an answer, seconds.
        connect_s: longest time to open a connection, seconds.
        max_questions: most open questions.
        plain_key: whether a key may go over plain HTTP to another machine.

    Raises:
        ConfigurationError: a value is impossible.
    """

    url: str
    model: str
    key_variable: str = ""
    timeout_s: float = 60.0
    first_token_s: float = 10.0
    silence_s: float = 5.0
    connect_s: float = 3.0
    max_questions: int = 64
    plain_key: bool = False

    def __post_init__(self) -> None:
        parts = _checked_url(self.url)
        if not self.model:
            raise ConfigurationError("cloud_model is empty: name a model that the cloud serves")
        problem = name_problem("cloud_model", self.model)
        if problem is not None:
            raise ConfigurationError(problem)
        if self.key_variable and not _VARIABLE.fullmatch(self.key_variable):
            # The value is not quoted: it may be the key itself.
            raise ConfigurationError(
                "cloud_key_variable must be the name of an environment variable, of letters, digits"
                " and underscores: the key itself is no parameter"
            )
        for name in ("timeout_s", "first_token_s", "silence_s", "connect_s"):
            number(f"cloud_{name}", getattr(self, name), 0.001, LONGEST_S, ConfigurationError)
        whole("cloud_max_questions", self.max_questions, 1, MOST_QUESTIONS, ConfigurationError)
        plain = parts.scheme == "http" and not self.loopback
        if self.key_variable and plain and not self.plain_key:
            raise ConfigurationError(
                f"cloud_url {quoted(self.url)} would send the key in plain text: take https, a"
                " loopback address, or set cloud_plain_key"
            )

    @property
    def host(self) -> str:
        """Host and port of the cloud, for sentences."""
        return urlsplit(self.url).netloc

    @property
    def loopback(self) -> bool:
        """Whether the cloud is on this machine."""
        host = urlsplit(self.url).hostname or ""
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost" or host.endswith(".localhost")

    @property
    def base(self) -> str:
        """The URL to which the names of resources are added; it ends without a slash."""
        url = self.url.rstrip("/")
        return url if urlsplit(url).path else f"{url}/v1"

    def key(self, environment: Mapping[str, str] = os.environ) -> str:
        """Return the key; empty: there is none to send.

        Raises:
            ConfigurationError: the variable is not set, or no header takes its value.
        """
        if not self.key_variable:
            return ""
        key = environment.get(self.key_variable, "").strip()
        if not key:
            raise ConfigurationError(
                f"the environment variable {self.key_variable}, which cloud_key_variable names, is"
                " not set: set it to the cloud's key"
            )
        if not _KEY.fullmatch(key):
            raise ConfigurationError(
                f"the environment variable {self.key_variable} must hold a key of printable ASCII"
                " characters without spaces, quotes and backslashes"
            )
        return key


def _checked_url(url: str) -> SplitResult:
    """Return the parts of a base URL.

    Raises:
        ConfigurationError: it is none.
    """
    problem = name_problem("cloud_url", url)
    if problem is not None:
        raise ConfigurationError(problem)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigurationError(f"cloud_url is no URL: {error}") from None
    if "@" in parts.netloc:  # not quoted: it may hold a password
        raise ConfigurationError(
            "cloud_url must hold no user and no password: cloud_key_variable names the key"
        )
    shown = quoted(url)
    if parts.scheme not in ("http", "https"):
        raise ConfigurationError(f"cloud_url must begin with http:// or https://, not {shown}")
    if port == 0 or not _is_host(parts.hostname or ""):
        raise ConfigurationError(f"cloud_url must name a host and its port, if any, not {shown}")
    if parts.query or parts.fragment or not re.fullmatch(r"[!-~]*", parts.path):
        raise ConfigurationError(
            f"cloud_url must end with a path of ASCII characters, without ? and #, not {shown}"
        )
    return parts


def _is_host(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return _HOST.fullmatch(host) is not None
    return True


def open_cloud(settings: CloudSettings, wake: Callable[[], object], clock: Clock) -> Cloud:
    """Return a client of the cloud; only now are its packages imported.

    Args:
        settings: where it is, and its bounds.
        wake: called from another thread when `poll` has something new.
        clock: stamps what arrives.

    Raises:
        RequirementError: a package is missing or too old.
        ConfigurationError: the key's variable is not set.
    """
    need("a cloud", "cloud")
    from timely_llm.cloud.openai import OpenAiCloud

    return OpenAiCloud(settings, wake, clock)
