# SPDX-License-Identifier: Apache-2.0
"""Services over a link: a server here for clients of this host, a client for those of others."""

from __future__ import annotations

import json
import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from shmnd import ipc

from . import wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .carrier import Carrier

__all__ = ["Asking", "Offered"]

_AT_ONCE: Final = 32
"""Requests of a service that are under way; further ones wait in the queue of the service."""


class Offered:
    """A service of this host: requests of far links go to its servers."""

    def __init__(self, carrier: Carrier, name: str) -> None:
        self._traffic = carrier.counts("out", "service", name)
        self._session = carrier.session
        self._client = ipc.Client(name, namespace=carrier.namespace)
        self._pool = ThreadPoolExecutor(_AT_ONCE, f"link of service {name}")
        self._key = wire.key("ask", carrier.origin, name)
        self._declared = [self._session.serve(self._key, self._asked)]
        self._declared.append(self._session.token(wire.key("srv", carrier.origin, name)))

    def _asked(self, query: Any) -> None:
        try:
            self._pool.submit(self._answer, query)
        except RuntimeError:
            query.drop()  # the link ends

    def _answer(self, query: Any) -> None:
        try:
            payload = query.payload.to_bytes() if query.payload else b""
            for answer in self._client.stream(wire.unpack_value(payload)):
                query.reply(self._key, wire.pack_value(answer.value))
            self._traffic.number += 1
            self._traffic.nbytes += len(payload)
        except Exception as exc:
            self._traffic.lost += 1
            failure = {"type": type(exc).__name__, "text": str(exc)}
            query.reply_err(json.dumps(failure).encode())
        finally:
            query.drop()

    def close(self) -> None:
        """End it; requests that are under way fail at their clients."""
        self._session.end(self._declared)
        self._client.close()
        self._pool.shutdown(cancel_futures=True)


class Asking:
    """A service of another host: a server of its name here, which asks there."""

    def __init__(self, carrier: Carrier, origin: str, name: str) -> None:
        self.origin: Final = origin
        self._name = name
        self._session = carrier.session
        self._traffic = carrier.counts("in", "service", name)
        self._key = wire.key("ask", origin, name)
        self._server = ipc.Server(name, namespace=carrier.namespace)
        self._pool = ThreadPoolExecutor(_AT_ONCE, f"link to service {name}")
        self._free = threading.Semaphore(_AT_ONCE)
        self._thread = threading.Thread(target=self._run, name=f"link to service {name}")
        self._thread.start()

    def _run(self) -> None:
        while True:
            self._free.acquire()
            try:
                request = self._server.receive()
                self._pool.submit(self._ask, request)
            except (ipc.Closed, RuntimeError):
                return

    def _ask(self, request: Any) -> None:
        replies: queue.SimpleQueue[Any] = queue.SimpleQueue()
        try:
            payload = wire.pack_value(request.value)
            self._session.ask(self._key, payload, replies.put, lambda: replies.put(None))
            self._traffic.nbytes += len(payload)
            request.stream(self._values(replies))
            self._traffic.number += 1
        except Exception as exc:
            self._traffic.lost += 1
            if not request.answered:
                request.fail(exc)
        finally:
            self._free.release()

    def _values(self, replies: queue.SimpleQueue[Any]) -> Iterator[Any]:
        number = 0
        while (reply := replies.get()) is not None:
            if reply.ok is None:
                raise _failure(bytes(reply.err.payload.to_bytes()))
            number += 1
            yield wire.unpack_value(reply.ok.payload.to_bytes())
        if not number:
            raise ipc.PeerLost(f"Client: the link to the server of {self._name!r} has ended")

    def close(self) -> None:
        """End the server here; its queue of requests stays for a server that comes."""
        self._server.close()
        self._free.release()
        self._thread.join()
        self._pool.shutdown(wait=False, cancel_futures=True)


def _failure(data: bytes) -> Exception:
    """Return the exception that a far server raised: the same built-in type, else RemoteError."""
    import builtins

    failure = json.loads(data)
    kind = getattr(builtins, str(failure.get("type")), None)
    text = str(failure.get("text"))
    if isinstance(kind, type) and issubclass(kind, Exception) and kind is not SystemError:
        try:
            return kind(text)
        except TypeError:
            pass
    return ipc.RemoteError(f"{failure.get('type')}: {text}")
