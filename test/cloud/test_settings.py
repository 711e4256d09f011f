"""Settings of a cloud: what is refused, and that no key is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest

from timely_llm.cloud.settings import MOST_QUESTIONS, CloudSettings, open_cloud
from timely_llm.core import requirements
from timely_llm.core.clock import WallClock
from timely_llm.core.errors import ConfigurationError
from timely_llm.ros.server.help import CLOUD


def settings(url: str = "https://api.example.com/v1", **more: Any) -> CloudSettings:
    return CloudSettings(url, **{"model": "large", **more})


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "api.example.com"}, "must begin with http:// or https://, not 'api.example.com'"),
        ({"url": "ftp://api.example.com"}, "must begin with http:// or https://"),
        ({"url": "https://"}, "must name a host"),
        ({"url": "https:///v1"}, "must name a host"),
        ({"url": "https://a b/v1"}, "must name a host"),
        ({"url": "https://api.example.com:0"}, "must name a host and its port"),
        ({"url": "https://api.example.com:99999"}, "no URL: Port out of range"),
        ({"url": "https://[::1"}, "no URL: Invalid IPv6 URL"),
        ({"url": "https://api.example.com/v1?key=x"}, r"without \? and #"),
        ({"url": "https://api.example.com/\n"}, "must be one line"),
        ({"model": ""}, "cloud_model is empty"),
        ({"model": "a\nb"}, "cloud_model .* must be one line"),
        ({"timeout_s": 0}, "cloud_timeout_s must be 0.001 to 3600, not 0"),
        ({"connect_s": float("nan")}, "cloud_connect_s must be"),
        ({"first_token_s": "5"}, "cloud_first_token_s must be a number"),
        ({"silence_s": 4000}, "cloud_silence_s must be"),
        ({"max_questions": 0}, "cloud_max_questions must be 1 to 1024, not 0"),
        ({"url": "http://10.0.0.1/v1", "key_variable": "KEY"}, "the key in plain text"),
    ],
)
def test_a_mistake_is_one_sentence(more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words) as error:
        settings(**more)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("more", [{"key_variable": "sk-12"}, {"url": "https://me:sk-12@host/v1"}])
def test_what_may_be_a_key_is_not_repeated(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError) as error:
        settings(**more)
    assert "sk-12" not in str(error.value)


@pytest.mark.parametrize(
    "url", ["http://localhost:8000", "http://127.0.0.2:1", "http://[::1]:80/v1"]
)
def test_a_key_may_go_to_this_machine_without_tls(url: str) -> None:
    assert settings(url, key_variable="KEY").loopback


def test_a_key_may_go_in_plain_text_where_that_is_set() -> None:
    settings("http://10.0.0.1", key_variable="KEY", plain_key=True)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://host", "https://host/v1"),
        ("https://host:1/", "https://host:1/v1"),
        ("https://host/openai/v1/", "https://host/openai/v1"),
    ],
)
def test_a_bare_host_gets_the_usual_path(url: str, base: str) -> None:
    assert settings(url).base == base


def test_the_key_is_read_from_its_variable_alone() -> None:
    named = settings(key_variable="MY_KEY")
    assert named.key({"MY_KEY": " sk-12 \n"}) == "sk-12"
    assert "sk-12" not in repr(named)
    assert settings().key({"MY_KEY": "sk-12"}) == ""
    with pytest.raises(ConfigurationError, match=r"variable MY_KEY, .* is not set"):
        named.key({})
    for wrong in ("sk 12", "sk-ü", "sk\n12", "'sk-12'"):
        with pytest.raises(ConfigurationError, match="printable ASCII") as error:
            named.key({"MY_KEY": wrong})
        assert not re.search("sk.?1|ü", str(error.value))


def test_a_cloud_is_opened_if_its_packages_are_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = open_cloud(settings(), lambda: None, WallClock())
    assert not opened.poll(0.0)
    opened.close()
    monkeypatch.setitem(requirements.EXTRAS, "cloud", {"no-such-distribution": "1.0"})
    with pytest.raises(requirements.RequirementError, match=r"^a cloud needs no-such-dist.*cloud"):
        open_cloud(settings(), lambda: None, WallClock())


def test_without_a_cloud_no_http_client_is_imported() -> None:
    code = """
import importlib, pkgutil, sys
import timely_llm.cloud.settings, timely_llm.progressive, timely_llm.serving
for room in (timely_llm.serving, timely_llm.progressive):
    for found in pkgutil.walk_packages(room.__path__, room.__name__ + "."):
        importlib.import_module(found.name)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"timely_llm.progressive.sketch", "timely_llm.cloud.settings"} <= loaded
    assert not {"timely_llm.cloud.openai", "httpx2", "httpcore2", "anyio", "asyncio"} & loaded


def test_the_parameter_allows_as_many_questions_as_the_settings() -> None:
    """A server without a cloud imports no settings, so its table has a number of its own."""
    (most,) = (one for one in CLOUD if one.name == "cloud_max_questions")
    assert most.high == MOST_QUESTIONS
