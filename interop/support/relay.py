"""A way to a server on which a reply can be lost."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable

# HTTP/2: three bytes of length, the type, the flags, and four bytes of the stream's number.
FRAME_HEAD_BYTES = 9
HEADERS = 1

Way = Callable[[socket.socket, socket.socket], None]


class Relay:
    """Passes bytes on between clients and a server, and loses the first replies."""

    def __init__(self, server: str, lose: int) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._left = lose
        self.lost = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *_: object) -> None:
        self._shut(self._listener, *self._ends)
        # The first one starts the others.
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._server) as server:
            self._ends += [client, server]
            back = threading.Thread(target=self._run, args=(self._pass_replies, server, client))
            back.start()
            self._run(self._pass, client, server)
            back.join()

    def _run(self, way: Way, source: socket.socket, target: socket.socket) -> None:
        try:
            way(source, target)
        except OSError:
            pass
        self._shut(source, target)

    @staticmethod
    def _shut(*ends: socket.socket) -> None:
        for end in ends:
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        while data := source.recv(1 << 16):
            target.sendall(data)

    def _pass_replies(self, source: socket.socket, target: socket.socket) -> None:
        """Ends the connection in place of a reply: the server has carried the call out by then."""
        with source.makefile("rb") as stream:
            while head := stream.read(FRAME_HEAD_BYTES):
                if head[3] == HEADERS and self._left > 0:
                    self._left -= 1
                    self.lost += 1
                    return
                target.sendall(head + stream.read(int.from_bytes(head[:3], "big")))
