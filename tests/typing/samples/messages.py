# SPDX-License-Identifier: Apache-2.0
"""Connections, results and queues as a user's program takes them, right and wrong."""

import asyncio

import shmnd


def talk(address: tuple[str, int]) -> bytes:
    """Send and receive, blocking."""
    with shmnd.connect(address, nbytes=1 << 16, depth=8, timeout=5) as connection:
        connection.send_bytes(b"bytes")
        connection.send_bytes(bytearray(4), timeout=1.5)
        connection.send_bytes(connection.memory[:8])
        connection.send_bytes("text")  # error
        count: int = connection.recv_into(bytearray(8))
        if connection.poll(0.5) and count:
            return connection.recv_bytes(timeout=1, maxlength=100)
        for message in connection:
            text: str = message  # error
            print(text)
        connection.recv_bytes(None, 100)  # error
        return b""


def serve() -> None:
    """Accept connections."""
    with shmnd.listen(("127.0.0.1", 0)) as server:
        host, port = server.address
        print(host.upper(), port + 1)
        for connection in server:
            connection.send_bytes(b"hello")
        shmnd.listen(54321)  # error


async def work(address: tuple[str, int], cq: shmnd.CompletionQueue) -> None:
    """Do the same in an event loop."""
    connection = await shmnd.aconnect(address)
    await connection.asend_bytes(b"x")
    answer: bytes = await connection.arecv_bytes()
    print(answer)
    async for message in connection:
        print(message.decode())
    async for result in cq:
        print(result.raise_if_failed().bytes_transferred)
    with shmnd.listen() as server:
        async with asyncio.timeout(1):
            await server.aaccept()


def reap(cq: shmnd.CompletionQueue, region: shmnd.MemoryRegion) -> str:
    """Take one result."""
    result = cq.wait_one(timeout=1)
    number: int = result.detail  # error
    print(number, region.sge("0"))  # error
    status: shmnd.Status = result.status
    return f"{status} {result.detail}"
