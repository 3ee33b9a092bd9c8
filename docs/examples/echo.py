# SPDX-License-Identifier: Apache-2.0
"""Echo: one process sends the messages of another one back."""

import multiprocessing
from multiprocessing.connection import Connection

import shmnd

LIMIT = 10.0
WORDS = [b"one", b"two", b"three"]


def serve(pipe: Connection) -> None:
    """Accept one connection and send each of its messages back."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(16)
        qp = adapter.create_queue_pair(cq, cq)
        region = adapter.create_memory_region()
        region.register(adapter.allocate(4096), shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        listener, connector = adapter.create_listener(), adapter.create_connector()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())

        listener.get_connection_request(connector).result(LIMIT)
        qp.receive(region.sge())
        connector.accept(qp).result(LIMIT)
        for _ in WORDS:
            (received,) = cq.wait(max=1, timeout=LIMIT)
            qp.send(region.sge(0, received.bytes_transferred))
            (sent,) = cq.wait(max=1, timeout=LIMIT)
            assert sent.status == shmnd.Status.SUCCESS
            qp.receive(region.sge())  # the memory is free again
            pipe.send("ready")
        pipe.recv()  # the other side has all messages


def main() -> None:
    """Start the server, send it a few words and print the answers."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    server = spawn.Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    theirs.close()
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(16)
        qp = adapter.create_queue_pair(cq, cq)
        memory = adapter.allocate(8192)
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        connector = adapter.create_connector()
        connector.connect(qp, pipe.recv()).result(LIMIT)
        connector.complete_connect().result(LIMIT)
        for word in WORDS:
            qp.receive(region.sge(4096), context="echo")
            memory[: len(word)] = word
            qp.send(region.sge(0, len(word)), context="word")
            done = 0
            while done < 2:
                results = cq.wait(timeout=LIMIT)
                assert results, "the server is silent"
                for result in results:
                    assert result.status == shmnd.Status.SUCCESS
                    done += 1
                    if result.request_context == "echo":
                        text = bytes(memory[4096 : 4096 + result.bytes_transferred])
                        print(f"{word.decode()} -> {text.decode()}")
            pipe.recv()
        pipe.send("bye")
        server.join(LIMIT)


if __name__ == "__main__":
    main()
