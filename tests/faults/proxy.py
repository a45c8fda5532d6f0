"""TCP proxies between servers and the services they use: one with random faults, one that a test blocks or cuts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from types import TracebackType
from typing import Self


class Proxy:
    """Forwards to a port of this machine, in a thread of its own."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.port = 0
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._end: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._end is not None
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    def _run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._through, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            writer.close()
            return
        copies = [asyncio.create_task(self._copy(reader, back)), asyncio.create_task(self._copy(there, writer))]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            # Before anything is awaited, because this task may be cancelled a second time.
            for each in (writer, back):
                each.close()
            await asyncio.gather(*copies, return_exceptions=True)
            for each in (writer, back):
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if not await self._may_pass():
                    # Data that was read but not forwarded is lost, and so is everything until they reconnect.
                    return
                writer.write(data)
                await writer.drain()

    async def _may_pass(self) -> bool:
        """Wait until the next piece may be forwarded; False cuts the connection."""
        return True


class FaultyProxy(Proxy):
    """Delays, stalls and cuts what goes through, by chance. No faults until ``faulty`` is set."""

    def __init__(self, target: int, seed: int) -> None:
        super().__init__(target)
        self.faulty = threading.Event()
        self.cut = 0
        self.delayed = 0
        self._chance = random.Random(seed)

    async def _may_pass(self) -> bool:
        if self.faulty.is_set():
            luck = self._chance.random()
            if luck < 0.01:
                self.cut += 1
                return False
            if luck < 0.3:
                self.delayed += 1
                await asyncio.sleep(self._chance.uniform(0.01, 0.4))
        return True


class Link(Proxy):
    """A network link that a test can block, cut and restore."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self._open = asyncio.Event()
        self._open.set()
        self._is_cut = False
        self._connections: set[asyncio.Task[None]] = set()

    def hold(self) -> None:
        """Block the link: connections stay open, but no data passes until ``restore``."""
        self._loop.call_soon_threadsafe(self._open.clear)

    def cut(self) -> None:
        """Reset all connections, and new ones, until ``restore``."""

        def cut() -> None:
            self._is_cut = True
            for each in self._connections:
                each.cancel()

        self._loop.call_soon_threadsafe(cut)

    def restore(self) -> None:
        def restore() -> None:
            self._is_cut = False
            self._open.set()

        self._loop.call_soon_threadsafe(restore)

    async def _through(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            writer.close()
            return
        task = asyncio.create_task(super()._through(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        await asyncio.wait([task])

    async def _may_pass(self) -> bool:
        await self._open.wait()
        return True
