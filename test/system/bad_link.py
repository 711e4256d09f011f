"""A link between two network namespaces that loses, delays or cuts what goes over it.

    python -m test.system.bad_link ONE OTHER

Each line of standard input sets it: a share of lost frames and a delay in seconds, such as
`0.05 0.1`. All are lost with a share of 1. The namespaces get 10.77.0.1 and 10.77.0.2. It prints
`ready`, and needs the right to administrate the network.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import random
import selectors
import struct
import subprocess
import sys
import time
from pathlib import Path

TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
CLONE_NEWNET = 0x40000000
FRAME_BYTES = 65_536


def tap(namespace: str, address: str) -> int:
    """Make a network device in a namespace; return the descriptor of its frames."""
    with Path("/run/netns", namespace).open("rb") as entered:
        if ctypes.CDLL(None, use_errno=True).setns(entered.fileno(), CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {namespace}")
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", b"way", IFF_TAP | IFF_NO_PI))
    for words in (
        f"address add {address}/24 dev way", "link set way up", "link set lo up",
        "route add 224.0.0.0/4 dev way",
    ):  # fmt: skip
        subprocess.run(["ip", *words.split()], check=True)
    return device


def main() -> None:
    """Carry frames until standard input ends."""
    one, other = tap(sys.argv[1], "10.77.0.1"), tap(sys.argv[2], "10.77.0.2")
    towards = {one: other, other: one}
    lost, delay_s = 0.0, 0.0
    drawn, order = random.Random(0), itertools.count()
    under_way: list[tuple[float, int, int, bytes]] = []
    selector = selectors.DefaultSelector()
    for descriptor in (one, other, sys.stdin.fileno()):
        selector.register(descriptor, selectors.EVENT_READ)
    print("ready", flush=True)
    while True:
        wait_s = max(under_way[0][0] - time.monotonic(), 0.0) if under_way else None
        for key, _ in selector.select(wait_s):
            if key.fd not in towards:
                if not (line := sys.stdin.readline()):
                    return
                lost, delay_s = map(float, line.split())
                continue
            frame = os.read(key.fd, FRAME_BYTES)
            if drawn.random() >= lost:
                at_s = time.monotonic() + delay_s
                heapq.heappush(under_way, (at_s, next(order), towards[key.fd], frame))
        while under_way and under_way[0][0] <= time.monotonic():
            *_, device, frame = heapq.heappop(under_way)
            os.write(device, frame)


if __name__ == "__main__":
    main()
