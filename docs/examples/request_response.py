# SPDX-License-Identifier: Apache-2.0
"""Request and response: several outstanding questions, with numbered answers.

A queue pair delivers messages in order, but a server may answer in any order. Each request carries
a number chosen by the client, and the response returns it.
"""

import multiprocessing
import struct
from multiprocessing.connection import Connection

import shmnd

LIMIT = 10.0
REQUEST = struct.Struct("<IQ")  # number, question
RESPONSE = struct.Struct("<IQ")  # number, answer
QUESTIONS = [3, 10, 20, 33]
DEPTH = len(QUESTIONS)
ROW = 64
"""The distance of two messages in memory: a cache line."""


def factorial(number: int) -> int:
    """Answer a question, modulo 2**64."""
    product = 1
    for factor in range(2, number + 1):
        product = product * factor % 2**64
    return product


def answer(pipe: Connection) -> None:
    """Collect all requests, then answer the last one first."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(2 * DEPTH)
        qp = adapter.create_queue_pair(cq, cq, receive_depth=DEPTH, initiator_depth=DEPTH)
        memory = adapter.allocate(DEPTH * ROW).data
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        listener, connector = adapter.create_listener(), adapter.create_connector()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        listener.get_connection_request(connector).result(LIMIT)
        for row in range(DEPTH):
            qp.receive(region.sge(row * ROW, REQUEST.size), context=row)
        connector.accept(qp).result(LIMIT)

        asked: list[int] = []
        while len(asked) < DEPTH:
            results = cq.wait(timeout=LIMIT)
            assert results, "the client is silent"
            asked += [result.request_context for result in results]
        for row in reversed(asked):
            number, question = REQUEST.unpack_from(memory, row * ROW)
            RESPONSE.pack_into(memory, row * ROW, number, factorial(question))
            qp.send(region.sge(row * ROW, RESPONSE.size))
        pipe.recv()  # the client has all answers


def main() -> None:
    """Ask all questions at once and print the answers as they arrive."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    server = spawn.Process(target=answer, args=(theirs,), daemon=True)
    server.start()
    theirs.close()
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(2 * DEPTH)
        qp = adapter.create_queue_pair(cq, cq, receive_depth=DEPTH, initiator_depth=DEPTH)
        memory = adapter.allocate(2 * DEPTH * ROW).data
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        connector = adapter.create_connector()
        connector.connect(qp, pipe.recv()).result(LIMIT)
        connector.complete_connect().result(LIMIT)
        for row in range(DEPTH):
            qp.receive(region.sge((DEPTH + row) * ROW, RESPONSE.size), context=DEPTH + row)
        for row, question in enumerate(QUESTIONS):
            REQUEST.pack_into(memory, row * ROW, row, question)
            # A Send that succeeds has no completion; one that fails has.
            qp.send(region.sge(row * ROW, REQUEST.size), flags=shmnd.OpFlag.SILENT_SUCCESS)
        answers = 0
        while answers < DEPTH:
            results = cq.wait(timeout=LIMIT)
            assert results, "the server is silent"
            for result in results:
                assert result.status == shmnd.Status.SUCCESS
                number, product = RESPONSE.unpack_from(memory, result.request_context * ROW)
                print(f"response to request {number}: {QUESTIONS[number]}! = {product}")
                answers += 1
        pipe.send("bye")
        server.join(LIMIT)
        assert server.exitcode == 0


if __name__ == "__main__":
    main()
