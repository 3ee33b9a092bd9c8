# SPDX-License-Identifier: Apache-2.0
"""A program for version 1 of the interface: a window, its descriptor, and a Write into it.

The owner binds a window and sends its descriptor in network byte order. The other side writes into
the window and then sends a message, which arrives after the data of the Write.
"""

import multiprocessing
from multiprocessing.connection import Connection

import shmnd.nd1 as nd
from shmnd import OpFlag, Status

LIMIT = 10.0
TCP = 6
TEXT = b"written from the other side"


def take(cq: nd.CompletionQueue, expected: nd.Result) -> None:
    """Wait for the next result, which is the object that was passed with the request."""
    (result,) = cq.wait(max=1, timeout=LIMIT)
    assert result is expected
    assert result.status == Status.SUCCESS


def own(pipe: Connection) -> None:
    """Grant access to a window and print the data written into it."""
    with nd.Provider().open_adapter("127.0.0.1") as adapter:
        inbound = adapter.create_completion_queue(8)
        outbound = adapter.create_completion_queue(8)
        memory = adapter.allocate(4096)
        handle, registered = adapter.register_memory(memory)
        registered.result(LIMIT)
        listen = adapter.listen(0, TCP, 0)
        pipe.send(listen.assigned_port)
        connector = adapter.create_connector()
        listen.get_connection_request(connector).result(LIMIT)
        endpoint = connector.create_endpoint(inbound, outbound, 4, 4, 1, 1)
        told = nd.Result()
        endpoint.receive(told, [nd.Sge(memory[:64], 64, handle)])
        connector.accept(endpoint).result(LIMIT)

        window, bound, sent = adapter.create_memory_window(), nd.Result(), nd.Result()
        base = int(memory.ctypes.data) + 1024
        descriptor = endpoint.bind(bound, handle, window, base, 1024, OpFlag.ALLOW_WRITE)
        take(outbound, bound)
        packed = descriptor.pack()
        endpoint.send(sent, [nd.Sge(packed, len(packed), None)])  # without a handle: inline
        take(outbound, sent)
        take(inbound, told)
        length = int(memory[0])
        pipe.send(bytes(memory[1024 : 1024 + length]).decode())
        pipe.recv()


def main() -> None:
    """Write into the window of another process."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    owner = spawn.Process(target=own, args=(theirs,), daemon=True)
    owner.start()
    theirs.close()
    with nd.Provider().open_adapter("127.0.0.1") as adapter:
        inbound = adapter.create_completion_queue(8)
        outbound = adapter.create_completion_queue(8)
        memory = adapter.allocate(4096)
        handle, registered = adapter.register_memory(memory)
        registered.result(LIMIT)
        connector = adapter.create_connector()
        endpoint = connector.create_endpoint(inbound, outbound, 4, 4, 1, 1)
        told, written, sent = nd.Result(), nd.Result(), nd.Result()
        endpoint.receive(told, [nd.Sge(memory[:64], 64, handle)])
        connector.connect(endpoint, ("127.0.0.1", pipe.recv()), TCP).result(LIMIT)
        connector.complete_connect().result(LIMIT)
        take(inbound, told)
        descriptor = nd.MwDescriptor.unpack(bytes(memory[: told.bytes_transferred]))
        print(f"a window of {descriptor.length} bytes is lent")
        memory[64 : 64 + len(TEXT)] = TEXT
        memory[128] = len(TEXT)
        endpoint.write(written, [nd.Sge(memory[64:], len(TEXT), handle)], descriptor, 0)
        endpoint.send(sent, [nd.Sge(memory[128:], 1, handle)])
        take(outbound, written)
        take(outbound, sent)
        print(f"its owner reads: {pipe.recv()}")
        pipe.send("bye")
        owner.join(LIMIT)
        assert owner.exitcode == 0


if __name__ == "__main__":
    main()
