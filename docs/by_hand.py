# SPDX-License-Identifier: Apache-2.0
"""The same two processes, each object made by hand: see the tutorial."""

import sys

import shmnd

ADDRESS = ("127.0.0.1", 54322)

with shmnd.open_adapter("127.0.0.1") as adapter:
    # 1. Memory that takes part in messages is registered.
    memory = adapter.allocate(4096)
    region = adapter.create_memory_region()
    region.register(memory, shmnd.MrFlag.ALLOW_LOCAL_WRITE).result()

    # 2. A queue pair takes requests; a completion queue returns their results.
    cq = adapter.create_completion_queue(16)
    qp = adapter.create_queue_pair(cq, cq)
    qp.receive(region.sge(2048, 2048), context="greeting")  # before the peer can send

    # 3. A connector makes the connection.
    connector = adapter.create_connector()
    if "client" in sys.argv:
        connector.connect(qp, ADDRESS).result(timeout=10)
        connector.complete_connect().result()
        text = b"hello from the client"
    else:
        listener = adapter.create_listener()
        listener.bind(ADDRESS)
        listener.listen()
        print("listening at", listener.get_local_address(), flush=True)
        listener.get_connection_request(connector).result()
        connector.accept(qp).result()
        text = b"hello from the server"

    # 4. Both sides send, and take two results: of the Send, and of the Receive.
    memory[: len(text)] = text
    qp.send(region.sge(0, len(text)), context="sent")
    for _ in range(2):
        result = cq.wait_one(timeout=10).raise_if_failed()
        if result.request_context == "greeting":
            print("received", bytes(memory[2048:][: result.bytes_transferred]))

    # No bytes, only to learn that the peer has what it was sent.
    qp.receive(None, context="bye")
    qp.send(None, context="bye sent")
    while cq.wait_one(timeout=10).request_context != "bye":
        pass
