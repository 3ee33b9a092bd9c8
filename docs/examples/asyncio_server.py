# SPDX-License-Identifier: Apache-2.0
"""An asyncio server with many clients: one thread and one completion queue.

Every overlapped operation can be awaited. The server awaits connection requests in one task and
the Notify of its completion queue in another; while no message arrives it sleeps in the event loop.
"""

import asyncio
import multiprocessing
from multiprocessing.connection import Connection

import shmnd

LIMIT = 10.0
CLIENTS = 8
ROUNDS = 5
SIZE = 64


class Server:
    """The state that the tasks share."""

    def __init__(self, adapter: shmnd.Adapter) -> None:
        self.adapter = adapter
        self.cq = adapter.create_completion_queue(4 * CLIENTS)
        self.memory = adapter.allocate(CLIENTS * SIZE)
        self.region = adapter.create_memory_region()
        self.listener = adapter.create_listener()
        self.clients: list[tuple[shmnd.QueuePair, shmnd.Connector]] = []

    async def start(self) -> tuple[str, int]:
        """Register the memory, listen, and return the address."""
        await self.region.register(self.memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        return self.listener.get_local_address()

    async def admit(self) -> None:
        """Accept each client that connects."""
        for place in range(CLIENTS):
            connector = self.adapter.create_connector()
            await self.listener.get_connection_request(connector)
            qp = self.adapter.create_queue_pair(self.cq, self.cq, context=place)
            self.clients.append((qp, connector))
            qp.receive(self.region.sge(place * SIZE, SIZE))
            await connector.accept(qp)

    async def answer(self) -> int:
        """Send each message back in capitals; return the number of messages."""
        answered = 0
        while answered < CLIENTS * ROUNDS:
            signal = self.cq.notify()
            results = self.cq.get_results()  # poll again: a message may precede the Notify
            if not results:
                await signal
                continue
            for result in results:
                assert result.status == shmnd.Status.SUCCESS
                place = result.queue_pair_context
                qp = self.clients[place][0]
                if result.request_type == shmnd.RequestType.RECEIVE:
                    text = bytes(self.memory[place * SIZE :][: result.bytes_transferred])
                    self.memory[place * SIZE :][: len(text)] = text.upper()
                    qp.send(self.region.sge(place * SIZE, len(text)))
                else:
                    qp.receive(self.region.sge(place * SIZE, SIZE))
                    answered += 1
        return answered


def ask(pipe: Connection, number: int, address: tuple[str, int]) -> None:
    """Run a client: send a text several times and compare the answers."""
    with shmnd.open_adapter() as adapter:
        receives, sends = adapter.create_completion_queue(4), adapter.create_completion_queue(4)
        qp = adapter.create_queue_pair(receives, sends)
        memory = adapter.allocate(2 * SIZE)
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        connector = adapter.create_connector()
        connector.connect(qp, address).result(LIMIT)
        connector.complete_connect().result(LIMIT)
        for count in range(ROUNDS):
            text = b"client %d, round %d" % (number, count)
            memory[: len(text)] = text
            qp.receive(region.sge(SIZE))
            qp.send(region.sge(0, len(text)))
            (received,) = receives.wait(max=1, timeout=LIMIT)
            assert bytes(memory[SIZE:][: received.bytes_transferred]) == text.upper()
            (sent,) = sends.wait(max=1, timeout=LIMIT)
            assert sent.status == shmnd.Status.SUCCESS
        pipe.send(bytes(memory[SIZE:][: received.bytes_transferred]).decode())
        pipe.recv()


async def serve() -> None:
    """Start the clients, serve them, and print the last answer of each."""
    spawn = multiprocessing.get_context("spawn")
    with shmnd.open_adapter() as adapter:
        server = Server(adapter)
        address = await server.start()
        clients, pipes = [], []
        for number in range(CLIENTS):
            pipe, theirs = spawn.Pipe()
            client = spawn.Process(target=ask, args=(theirs, number, address), daemon=True)
            client.start()
            theirs.close()
            clients.append(client)
            pipes.append(pipe)
        async with asyncio.timeout(3 * LIMIT):
            _, answered = await asyncio.gather(server.admit(), server.answer())
        for pipe in pipes:
            print(pipe.recv())
            pipe.send("bye")
        for client in clients:
            client.join(LIMIT)
            assert client.exitcode == 0
    print(f"{answered} messages of {CLIENTS} clients answered")


if __name__ == "__main__":
    asyncio.run(serve())
