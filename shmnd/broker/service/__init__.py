# SPDX-License-Identifier: Apache-2.0
"""The broker process: its sockets, its records, and the reply to every request.

server.py              sockets and the event loop
client_queues.py       messages that wait for each client
validation.py          the form of a valid request
descriptor_limit.py    its limit of descriptors, and clients for which none is free
scheduling.py          when the broker runs, while many connections are made
rendezvous.py          every request, without a socket
adapters.py            requests about adapters and their segments
ports.py               the owner of each address and port
records.py             processes, adapters, bound objects and connections
connections.py         a connection from connect to its end, and its replay after a restart
connection_records.py  the records of connections
names.py               requests about named records and introductions of adapters
directory.py           named records, their watchers, and introductions of adapters
report.py              counts and records for tools
"""
