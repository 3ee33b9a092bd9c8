# SPDX-License-Identifier: Apache-2.0
"""The broker: a small process per user and namespace, for rendezvous, liveness and clean-up.

It owns the port space, carries connect, accept and reject with their private data, and hands
descriptors from process to process. It never touches a message, and it may die at any moment:
connections do not notice, and clients tell the next broker what they hold.

    place.py         the directory, its lock and its socket: who may come in, and who is the broker
    protocol.py      datagrams, and the descriptors beside them
    validation.py        what a well-formed request looks like
    ports.py         which address and port belongs to whom
    records.py       what the broker knows of processes, adapters, objects and connections
    connections.py   from connect to the end of a connection, and their replay after a restart
    directory.py     named records, their watchers, and meetings of adapters
    rendezvous.py    every request, without any socket
    report.py        what it says about itself to tools
    server.py        sockets, queues and the loop
    spawn.py         finding the broker, and starting it when there is none
    client.py        the other end of the socket, one per process

Nothing here imports a message path, and nothing outside the standard library.
"""
