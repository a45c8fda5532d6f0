"""A way to a server that is cut where a test wants it: connections pass through, byte by byte, until one is told to end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

TIMEOUT = 60.0


class CuttingProxy:
    """Stands on a port of its own. What clients sent is in ``heads``, a text for each connection."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._changed = threading.Condition()
        self._cuts: list[bytes] = []
        self._drops = 0
        self._is_gone = False
        self.heads: list[str] = []
        threading.Thread(target=self._accept, name="cutting-proxy", daemon=True).start()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def cut_within(self, words: bytes) -> None:
        """Cut the connection that brings these words, after the first half of them. Each time it is called, once."""
        with self._changed:
            self._cuts.append(words)

    def drop_answers(self, times: int = 1) -> None:
        """The next requests for a turn arrive, and their connections end without a byte of an answer."""
        with self._changed:
            self._drops += times

    def go_away(self) -> None:
        """From now on nobody listens here."""
        self._is_gone = True
        # Closing alone would leave the thread in accept().
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.go_away()

    def wait_connections(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.heads) >= count, TIMEOUT), self.heads

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            head = client.recv(65536)
            is_dropped = False
            with self._changed:
                self.heads.append(head.decode("latin-1").partition("\r\n\r\n")[0])
                if self._drops and b"/turns " in head.partition(b"\r\n")[0]:
                    self._drops -= 1
                    is_dropped = True
                self._changed.notify_all()
            server.sendall(head)
            if is_dropped:
                # The rest of the request may still be on its way; the server's first byte says that it has it all.
                client.settimeout(0.5)
                with contextlib.suppress(TimeoutError):
                    server.sendall(client.recv(65536))
                server.recv(1)
                return
            threading.Thread(target=self._forward, args=(client, server), daemon=True).start()
            self._answer(server, client)
            # Wakes the thread that waits for more of the request.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(65536):
                server.sendall(data)
            server.shutdown(socket.SHUT_WR)

    def _answer(self, server: socket.socket, client: socket.socket) -> None:
        """Forward what the server says, up to its end or a cut."""
        passed = b""
        while data := server.recv(65536):
            with self._changed:
                for words in self._cuts:
                    found = (passed + data).find(words)
                    if found >= 0:
                        self._cuts.remove(words)
                        client.sendall(data[: max(found + len(words) // 2 - len(passed), 0)])
                        return
            client.sendall(data)
            passed = (passed + data)[-200:]


@contextlib.contextmanager
def proxied(port: int) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
