"""A real Chromium without a window and without a network, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tornado.httpclient import AsyncHTTPClient
from tornado.websocket import WebSocketClientConnection, websocket_connect

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)
LONGEST_S = 60.0


class Page:
    """One page; what its console says and what it asks the network for are kept.

    Attributes:
        said: warnings, errors and exceptions.
        asked: addresses that were asked for, the page's own left out.
    """

    def __init__(self, connection: WebSocketClientConnection) -> None:
        self._connection = connection
        self._number = 0
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._loaded = asyncio.Event()
        self._reader = asyncio.ensure_future(self._read())
        self.said: list[str] = []
        self.asked: list[str] = []

    async def call(self, method: str, **values: Any) -> dict[str, Any]:
        """Return what the browser answers to a method of the protocol."""
        self._number += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        await self._connection.write_message(
            json.dumps({"id": self._number, "method": method, "params": values})
        )
        return await asyncio.wait_for(answer, LONGEST_S)

    async def run(self, script: str) -> Any:
        """Return the value of a script, once it is there."""
        got = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in got, got
        return got["result"].get("value")

    async def show(self, file: Path, *, width: int = 1280, dark: bool = False) -> None:
        """Load a page and wait until its plots are drawn."""
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.call(f"{domain}.enable")
        await self.call("Emulation.setDeviceMetricsOverride", width=width, height=900,
                        deviceScaleFactor=1, mobile=False)  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])
        await self.call("Page.navigate", url=file.absolute().as_uri())
        await asyncio.wait_for(self._loaded.wait(), LONGEST_S)
        await self.run(_DRAWN)

    async def picture(self, file: Path) -> None:
        """Save what the page looks like."""
        got = await self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(got["data"]))

    async def _read(self) -> None:
        while (text := await self._connection.read_message()) is not None:
            message = json.loads(text)
            values = message.get("params", {})
            match message.get("method"):
                case None:
                    answer = self._answers.pop(message["id"])
                    answer.set_result(message.get("result") or {"error": message.get("error")})
                case "Page.loadEventFired":
                    self._loaded.set()
                case "Network.requestWillBeSent":
                    self._asked(values["request"]["url"])
                case "Log.entryAdded":
                    self.said.append(values["entry"]["text"])
                case "Runtime.exceptionThrown":
                    self.said.append(str(values["exceptionDetails"]))
                case "Runtime.consoleAPICalled" if values["type"] in ("error", "warning"):
                    self.said.append(str(values["args"]))

    def _asked(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.asked.append(url)


_DRAWN = """new Promise((done) => {
  const look = () => document.documentElement?.dataset.drawn ? done(true) : setTimeout(look, 20);
  look();
})"""


@asynccontextmanager
async def chromium(folder: Path) -> AsyncIterator[Page]:
    """Yield a blank page of a browser that ends with this context; `folder` keeps its profile."""
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-port=0",
        f"--user-data-dir={folder}", "about:blank",
    ]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = await asyncio.wait_for(_port(folder / "DevToolsActivePort"), LONGEST_S)
        pages = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/json/list")
        address = next(p for p in json.loads(pages.body) if p["type"] == "page")
        connection = await websocket_connect(
            address["webSocketDebuggerUrl"], max_message_size=2**28
        )
        yield Page(connection)
        connection.close()
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


async def _port(file: Path) -> int:
    """Return the port that the browser chose, once it has printed it."""
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if len(lines) > 1:
            return int(lines[0])
        await asyncio.sleep(0.05)
