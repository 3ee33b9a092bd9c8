# SPDX-License-Identifier: Apache-2.0
"""The broker: a small process per user and namespace, for rendezvous, liveness and clean-up.

It owns the port space, carries connect, accept and reject with their private data, and hands
descriptors from process to process. It never touches a message, and it may die at any moment:
connections do not notice, and clients report to the next broker what they hold.

    place.py         the directory of a namespace, its lock and its socket
    access.py        which users and groups may enter
    protocol.py      datagrams, and the descriptors that travel with them
    untaken.py       descriptors that came with a message, and that no object has taken
    posts.py         messages that need no reply, and wait until the socket has room
    spawn.py         find the broker, and start it when none runs
    inherited.py     what a broker does not keep of the program that starts it
    lock.py          taking a lock within a time, also where a handler of a signal raises
    session.py       one socket to a broker: requests, replies, events
    client.py        the client of a process, shared by its threads
    observer.py      a read-only connection for tools
    leftovers.py     files that remain after a crash, and their removal
    service/         the broker process itself: its sockets, its records, its replies

Nothing here imports a message path. Besides the standard library it needs `shmnd.common` and
`shmnd.status` alone, since the broker runs without site packages.
"""
