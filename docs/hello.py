# SPDX-License-Identifier: Apache-2.0
"""Two processes that talk: `hello.py` in one terminal, `hello.py client` in another."""

import sys

import shmnd

ADDRESS = ("127.0.0.1", 54321)

if "client" in sys.argv:
    with shmnd.connect(ADDRESS) as connection:
        connection.send_bytes(b"hello")
        print("the answer is", connection.recv_bytes(timeout=10))
else:
    with shmnd.listen(ADDRESS) as server:
        print("listening at", server.address, flush=True)
        with server.accept() as connection:
            for message in connection:  # until the client closes
                print("received", message)
                connection.send_bytes(message.upper())
