# SPDX-License-Identifier: Apache-2.0
"""A ring all-reduce: N processes compute the sum of all their vectors.

Each process sends to its right neighbour and receives from its left one. N - 1 steps add the parts,
and N - 1 more steps pass the sums around. All Receives are posted before the first Send. The later
Receives are directly in the vector: the sum of a part arrives only after all processes have used
the previous contents.
"""

import multiprocessing
from multiprocessing.connection import Connection

import numpy

import shmnd

LIMIT = 10.0
PROCESSES = 4
PART = 8192
"""The number of elements in each part of a vector."""

NBYTES = PART * 8
STEPS = 2 * (PROCESSES - 1)


def take_part(pipe: Connection, rank: int) -> None:
    """Run one process of the ring."""
    with shmnd.open_adapter() as adapter:
        cq = adapter.create_completion_queue(2 * STEPS)
        left = adapter.create_queue_pair(cq, cq, receive_depth=STEPS)
        right = adapter.create_queue_pair(cq, cq, initiator_depth=STEPS)
        memory = adapter.allocate((2 * PROCESSES - 1) * NBYTES)
        parts = memory.view(numpy.float64).reshape(-1, PART)
        vector, arrivals = parts[:PROCESSES], parts[PROCESSES:]
        vector[:] = rank + 1
        region = adapter.create_memory_region()
        region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result(LIMIT)
        for step in range(STEPS):
            adding = step < PROCESSES - 1
            row = PROCESSES + step if adding else (rank - step - 1) % PROCESSES
            left.receive(region.sge(row * NBYTES, NBYTES))

        listener = adapter.create_listener()
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        pipe.send(listener.get_local_address())
        from_left, to_right = adapter.create_connector(), adapter.create_connector()
        asked = listener.get_connection_request(from_left)
        connecting = to_right.connect(right, pipe.recv())
        asked.result(LIMIT)
        accepting = from_left.accept(left)
        connecting.result(LIMIT)
        to_right.complete_connect().result(LIMIT)
        accepting.result(LIMIT)

        done = {shmnd.RequestType.RECEIVE: 0, shmnd.RequestType.SEND: 0}
        for step in range(STEPS):
            right.send(region.sge((rank - step) % PROCESSES * NBYTES, NBYTES))
            while min(done.values()) <= step:
                results = cq.wait(timeout=LIMIT)
                assert results, "the ring stands still"
                for result in results:
                    assert result.status == shmnd.Status.SUCCESS
                    done[result.request_type] += 1
            if step < PROCESSES - 1:
                vector[(rank - step - 1) % PROCESSES] += arrivals[step]
        pipe.send((float(vector.min()), float(vector.max())))
        pipe.recv()  # all processes have their sums


def main() -> None:
    """Start the ring, send each process the address of its right neighbour, and print the sums."""
    spawn = multiprocessing.get_context("spawn")
    pipes, ring = [], []
    for rank in range(PROCESSES):
        pipe, theirs = spawn.Pipe()
        process = spawn.Process(target=take_part, args=(theirs, rank), daemon=True)
        process.start()
        theirs.close()
        pipes.append(pipe)
        ring.append(process)
    addresses = [pipe.recv() for pipe in pipes]
    for rank, pipe in enumerate(pipes):
        pipe.send(addresses[(rank + 1) % PROCESSES])
    for rank, pipe in enumerate(pipes):
        low, high = pipe.recv()
        print(f"process {rank}: every sum is between {low:g} and {high:g}")
    for pipe in pipes:
        pipe.send("bye")
    for process in ring:
        process.join(LIMIT)
        assert process.exitcode == 0


if __name__ == "__main__":
    main()
