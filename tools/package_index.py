"""The package index that pip is configured with, and its lists of files (PEP 691)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.parse
import urllib.request
from typing import Any

JSON = "application/vnd.pypi.simple.v1+json"
TIMEOUT_S = 60.0


class PackageIndexError(Exception):
    """An index does not have, or does not say, what is asked of it: one sentence."""


def pip_setting(name: str) -> dict[str, str]:
    """Return the values of a setting of pip, by the sections of its configuration."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    listed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    return dict(re.findall(rf"^(\S+)\.{name}='(.*)'$", listed, re.MULTILINE))


def index_url() -> str:
    """Return the package index that pip is configured with.

    Raises:
        PackageIndexError: none is configured, and pip does not print its own.
    """
    found = pip_setting("index-url")
    for section in (":env:", "download", "install", "global"):
        if section in found:
            return found[section].rstrip("/")
    return default_index()


def default_index() -> str:
    """Return the package index that pip uses where none is configured."""
    # pip prints it nowhere else.
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise PackageIndexError(
            "this pip does not print its package index: configure one (index-url)"
        )
    return done.stdout.strip().rstrip("/")


def files_of(package: str, index: str) -> list[dict[str, Any]]:
    """Return the files of a package, as the index lists them, with whole addresses.

    Raises:
        PackageIndexError: the index does not answer in JSON.
        OSError: it cannot be reached.
    """
    page = f"{index}/{package}/"
    if urllib.parse.urlsplit(page).scheme not in ("http", "https"):
        raise PackageIndexError("the index is no web server")
    request = urllib.request.Request(page, headers={"Accept": JSON})
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if JSON not in answer.headers.get("Content-Type", ""):
            raise PackageIndexError(f"the index of {host(page)} does not answer in JSON")
        listed = json.load(answer)["files"]
    return [one | {"url": urllib.parse.urljoin(page, one["url"])} for one in listed]


def host(url: str) -> str:
    """Return what may be shown of an address: never a password."""
    parts = urllib.parse.urlsplit(url)
    return parts.hostname or parts.scheme or "it"
