"""Rows about files of workspaces over AHP. The floor is the same work with calls of the operating system."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

from ops.benchmark.ahp import AhpClient
from ops.benchmark.figures import Figure, percentile
from ops.benchmark.load import LoadError
from ops.benchmark.setting import Bench, Cpu, Row, ms
from ops.benchmark.with_workspaces import with_workspaces

_FOLDER = "file:///workspace"
_CONTENT = b"A line of a file that a client reads, 64 bytes with its newline.\n" * 32
_CLIENTS = 16
_LISTS = 10


async def _files(bench: Bench) -> list[Figure]:
    there = await with_workspaces(bench)
    if there is None:
        return []
    if "file key" not in there.kept:
        # The workspace of the rows' own tenant is the one that terminals start in.
        there.kept["file key"] = await asyncio.to_thread(there.installation.issue_key, "bench-files")
    origin, key = there.installation.origins[0], there.kept["file key"]
    size = bench.size
    names = [f"file-{number:05}.txt" for number in range(size.files)]
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(AhpClient(origin, key)) for _ in range(_CLIENTS)]
        if "files" not in there.kept:
            there.kept["files"] = await _made(there, clients[0], names)
        folder: Path = there.kept["files"]
        lists, floor_lists = [], []
        for _ in range(_LISTS):
            began = time.monotonic()
            found = await clients[0].request("resourceList", {"uri": _FOLDER})
            lists.append(time.monotonic() - began)
            if len(found["entries"]) != len(names):
                raise LoadError(f"a list of {len(names):,} files has {len(found['entries']):,}")
            floor_lists.append(listed(folder))
        reads, floor_reads = [], []
        for name in names[: size.file_reads]:
            began = time.monotonic()
            await _read(clients[0], name)
            reads.append(time.monotonic() - began)
            floor_reads.append(read(folder / name))
        cpu, left, began = Cpu(there), list(names), time.monotonic()
        await asyncio.gather(*(_read_all(client, left) for client in clients))
        rate = len(names) / (time.monotonic() - began)
        used = await cpu.figures(len(names), "file read", 1e3, "ms")
    floor_rate = len(names) / sum(read(folder / name) for name in names)
    kib = len(_CONTENT) / 1024
    return [
        Figure(f"list of {len(names):,} files", "ms", ms(median(lists)), ms(median(floor_lists))),
        *(
            Figure(
                f"read of one file of {kib:.0f} KiB {name}",
                "ms",
                ms(percentile(reads, share)),
                ms(percentile(floor_reads, share)),
                decimals=3,
            )
            for name, share in (("p50", 0.5), ("p95", 0.95))
        ),
        Figure(
            f"files read, {len(names):,} by {_CLIENTS} clients at once (floor: one thread)",
            "a second",
            rate,
            floor_rate,
            decimals=0,
        ),
        *used,
    ]


def listed(folder: Path) -> float:
    """Seconds that names and kinds of all entries take, sorted."""
    began = time.monotonic()
    with os.scandir(folder) as entries:
        sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    return time.monotonic() - began


def read(path: Path) -> float:
    began = time.monotonic()
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    try:
        os.read(descriptor, 1 << 20)
    finally:
        os.close(descriptor)
    return time.monotonic() - began


async def _made(there: Bench, client: AhpClient, names: list[str]) -> Path:
    """Write the first file over AHP, which makes the workspace, and the others beside it, as a program in a sandbox would."""
    await client.request("resourceWrite", {"uri": f"{_FOLDER}/{names[0]}", "data": _CONTENT.decode(), "encoding": "utf-8"})
    volume = Path(there.installation.checkout.environment["AGENTHOST_WORKSPACES_DIR"])
    return await asyncio.to_thread(_filled, volume, names)


def _filled(volume: Path, names: list[str]) -> Path:
    [first] = volume.glob(f"*/*/tree/{names[0]}")
    owner = first.stat()
    for name in names[1:]:
        path = first.with_name(name)
        path.write_bytes(_CONTENT)
        os.chown(path, owner.st_uid, owner.st_gid)
    return first.parent


async def _read(client: AhpClient, name: str) -> None:
    found = await client.request("resourceRead", {"uri": f"{_FOLDER}/{name}"})
    if len(found["data"]) != len(_CONTENT):
        raise LoadError(f"{name} has {len(found['data']):,} characters instead of {len(_CONTENT):,}")


async def _read_all(client: AhpClient, left: list[str]) -> None:
    while left:
        await _read(client, left.pop())


ROWS = (Row("files", "10,000 files over AHP: list, one read, files a second", _files),)
