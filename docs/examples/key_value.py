# SPDX-License-Identifier: Apache-2.0
"""A table of keys and values that clients use by Read and Write only.

The server registers the table and publishes its address; after that it makes no call. Each client
writes into its own part, so no slot has two writers. A Read that runs concurrently with a Write may
return a mixture of old and new bytes: a checksum in the slot detects this, and the client repeats
the Read.
"""

import multiprocessing
import struct
import zlib
from multiprocessing.connection import Connection

import numpy

import shmnd

LIMIT = 10.0
CLIENTS = 3
SLOTS = 64
SLOT = struct.Struct("<I28s32s")  # checksum, key, value
TABLE = struct.Struct("<QI")  # address and token of the table
LOOKS = 10_000
"""The number of attempts to read a slot before its writer is considered dead."""

LIMITS = 4, 4
RIGHTS = shmnd.MrFlag.ALLOW_REMOTE_READ | shmnd.MrFlag.ALLOW_REMOTE_WRITE


class Table:
    """The table from the view of a client."""

    def __init__(self, adapter: shmnd.Adapter, address: tuple[str, int], part: int) -> None:
        self.part = part
        self.cq = adapter.create_completion_queue(4)
        self.qp = adapter.create_queue_pair(self.cq, self.cq)
        self.memory = adapter.allocate(SLOT.size)
        self.region = adapter.create_memory_region()
        self.region.register(self.memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        self.connector = adapter.create_connector()
        self.connector.connect(self.qp, address, *LIMITS).result(LIMIT)
        self.base, self.token = TABLE.unpack(self.connector.get_private_data()[: TABLE.size])
        self.connector.complete_connect().result(LIMIT)

    def _finish(self) -> None:
        (result,) = self.cq.wait(max=1, timeout=LIMIT)
        assert result.status == shmnd.Status.SUCCESS, result

    def _slot(self, part: int, key: bytes, probe: int) -> int:
        place = (zlib.crc32(key) + probe) % SLOTS
        return int(self.base + (part * SLOTS + place) * SLOT.size)

    def _read_slot(self, address: int) -> tuple[bytes, bytes]:
        for _ in range(LOOKS):
            self.qp.read(self.region.sge(), address, self.token)
            self._finish()
            check, key, value = SLOT.unpack(bytes(self.memory))
            if not any(key) or check == zlib.crc32(key + value):
                return key.rstrip(b"\0"), value.rstrip(b"\0")
        raise RuntimeError(f"a slot was half written each of the {LOOKS} times it was read")

    def put(self, key: bytes, value: bytes) -> None:
        """Write a value into this client's part."""
        for probe in range(SLOTS):
            address = self._slot(self.part, key, probe)
            if self._read_slot(address)[0] in (b"", key):
                fields = key.ljust(28, b"\0"), value.ljust(32, b"\0")
                slot = SLOT.pack(zlib.crc32(b"".join(fields)), *fields)
                self.memory[:] = numpy.frombuffer(slot, numpy.uint8)
                self.qp.write(self.region.sge(), address, self.token)
                self._finish()
                return
        raise KeyError(f"part {self.part} has no room for {key!r}: all {SLOTS} slots are taken")

    def get(self, part: int, key: bytes) -> bytes:
        """Read a value from the part of any client."""
        for probe in range(SLOTS):
            found, value = self._read_slot(self._slot(part, key, probe))
            if found == key:
                return value
            if not found:
                break
        raise KeyError(f"{key!r} is not in part {part}")


def use(pipe: Connection, part: int, address: tuple[str, int]) -> None:
    """Put a few values, wait for all clients, and read the values of the next client."""
    with shmnd.open_adapter() as adapter:
        table = Table(adapter, address, part)
        for number in range(20):
            table.put(b"key %d" % number, b"value %d of client %d" % (number, part))
        pipe.send("written")
        pipe.recv()
        pipe.send(table.get((part + 1) % CLIENTS, b"key 7").decode())
        pipe.recv()
        table.connector.disconnect().result(LIMIT)


def main() -> None:
    """Create the table, start the clients, and print their results."""
    spawn = multiprocessing.get_context("spawn")
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(4)
        region = adapter.create_memory_region()
        region.register(adapter.allocate(CLIENTS * SLOTS * SLOT.size), RIGHTS).result(LIMIT)
        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        where = TABLE.pack(region.address, region.remote_token)
        clients, pipes, kept = [], [], []
        for part in range(CLIENTS):
            pipe, theirs = spawn.Pipe()
            client = spawn.Process(
                target=use, args=(theirs, part, listener.get_local_address()), daemon=True
            )
            client.start()
            theirs.close()
            connector, qp = adapter.create_connector(), adapter.create_queue_pair(cq, cq)
            listener.get_connection_request(connector).result(LIMIT)
            connector.accept(qp, *LIMITS, private_data=where).result(LIMIT)
            clients.append(client)
            pipes.append(pipe)
            kept.append((connector, qp))
        for answer in ("written", None):
            for part, pipe in enumerate(pipes):
                said = pipe.recv()
                print(f"client {part}: {said}")
                assert answer is None or said == answer
            for pipe in pipes:
                pipe.send("continue")
        for client in clients:
            client.join(LIMIT)
            assert client.exitcode == 0
        print(f"the server reaped {len(cq.get_results())} completions")


if __name__ == "__main__":
    main()
