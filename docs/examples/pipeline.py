# SPDX-License-Identifier: Apache-2.0
"""A numpy pipeline: arrays are sent between processes without pickling or intermediate copies.

The producer computes directly into registered memory, and the Send copies the bytes from there into
the array that the consumer posted. This is the only copy; neither program makes another one.
"""

import multiprocessing
from multiprocessing.connection import Connection

import numpy

import shmnd

LIMIT = 10.0
FRAMES = 20
SHAPE = (256, 256)
NBYTES = 256 * 256 * 8
DEPTH = 4
"""The number of outstanding frames; each has its own array on both sides."""


def produce(address: tuple[str, int]) -> None:
    """Compute frames into registered arrays and send them, at most DEPTH at a time."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(DEPTH)
        qp = adapter.create_queue_pair(cq, cq, initiator_depth=DEPTH)
        memory = adapter.allocate(DEPTH * NBYTES)
        frames = memory.view(numpy.float64).reshape(DEPTH, *SHAPE)
        region = adapter.create_memory_region()
        region.register(memory).result(LIMIT)
        connector = adapter.create_connector()
        connector.connect(qp, address).result(LIMIT)
        connector.complete_connect().result(LIMIT)
        free = list(range(DEPTH))
        for number in range(FRAMES):
            if not free:
                free += reap(cq)
            place = free.pop()
            numpy.multiply(numpy.ones(SHAPE), number, out=frames[place])
            qp.send(region.sge(place * NBYTES, NBYTES), context=place)
        while len(free) < DEPTH:
            free += reap(cq)
        connector.notify_disconnect().result(LIMIT)  # the consumer has processed all frames


def reap(cq: shmnd.CompletionQueue) -> list[int]:
    """Wait for completions and return their places."""
    results = cq.wait(timeout=LIMIT)
    assert results, "nothing completed"
    assert all(result.status == shmnd.Status.SUCCESS for result in results)
    return [result.request_context for result in results]


def consume(pipe: Connection) -> None:
    """Process the frames in the order they were sent, each at the place where it arrived."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(DEPTH)
        qp = adapter.create_queue_pair(cq, cq, receive_depth=DEPTH)
        memory = adapter.allocate(DEPTH * NBYTES)
        frames = memory.view(numpy.float64).reshape(DEPTH, *SHAPE)
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        for place in range(DEPTH):
            qp.receive(region.sge(place * NBYTES, NBYTES), context=place)
        listener, connector = adapter.create_listener(), adapter.create_connector()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        listener.get_connection_request(connector).result(LIMIT)
        connector.accept(qp).result(LIMIT)
        seen = 0
        total = 0.0
        while seen < FRAMES:
            for place in reap(cq):
                assert frames[place].min() == frames[place].max() == seen, "torn or out of order"
                total += float(frames[place].sum())
                seen += 1
                if seen + DEPTH <= FRAMES:
                    qp.receive(region.sge(place * NBYTES, NBYTES), context=place)
        connector.disconnect().result(LIMIT)
        pipe.send((seen, total))


def main() -> None:
    """Start both ends and print the results."""
    spawn = multiprocessing.get_context("spawn")
    pipe, theirs = spawn.Pipe()
    consumer = spawn.Process(target=consume, args=(theirs,), daemon=True)
    consumer.start()
    theirs.close()
    producer = spawn.Process(target=produce, args=(pipe.recv(),), daemon=True)
    producer.start()
    seen, total = pipe.recv()
    print(f"{seen} frames of {NBYTES // 1024} KiB in order, sum {total:.0f}")
    producer.join(LIMIT)
    consumer.join(LIMIT)
    assert (producer.exitcode, consumer.exitcode) == (0, 0)


if __name__ == "__main__":
    main()
