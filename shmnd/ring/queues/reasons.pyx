# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3
"""The texts of errors and results: why a call was refused, and why a request failed."""

from shmnd.ring cimport c
from shmnd.ring.queues.polling cimport PollingCore
from shmnd.ring.queues.progress cimport ProgressCore
from shmnd.ring.queues.shared_receive_queue cimport receive_reason
from shmnd.ring.shared_memory.sge cimport Sge

from shmnd.common.arguments import shown
from shmnd.common.closing import why_closed
from shmnd.status import OpFlag, Status, error

cdef tuple _STATES = ("not connected", "connecting", "not yet connected", "connected",
                      "no longer connected", "disconnected")

cdef dict _LEGAL = {
    "send": c.SHMND_SEND_FLAGS, "send_and_invalidate": c.SHMND_SEND_FLAGS,
    "read": c.SHMND_READ_FLAGS, "write": c.SHMND_WRITE_FLAGS,
    "bind": c.SHMND_BIND_FLAGS, "invalidate": c.SHMND_INVALIDATE_FLAGS,
}
cdef dict _IN_VERSION_1 = {
    "max_initiator_sge": "outbound_sge", "max_receive_sge": "inbound_sge",
    "receive_depth": "inbound_entries", "inline_size": "",
}
cdef tuple _ENDED = (int(Status.IO_TIMEOUT), int(Status.CANCELED))


cdef str state_of(ProgressCore pair):
    """Return the state of a queue pair, as errors and its representation name it."""
    return "closed" if pair.released else _STATES[pair.q.state]


cdef str why_unconnected(ProgressCore pair):
    """Return why a call that needs a connected queue pair was refused, and the remedy."""
    cdef str noun = "queue pair" if pair.title == "QueuePair" else "endpoint"
    if pair.released:
        return why_closed(pair.adapter, noun)
    if pair.q.state >= c.SHMND_QP_DOWN:
        return f"the {noun} is {state_of(pair)}; make a new one"
    return (f"the {noun} is {state_of(pair)}; connect and complete_connect, or accept, "
            "come first")


# -- calls that were refused --

cdef refuse(ProgressCore pair, str method, uint32_t status, object sge, object flags):
    """Raise for a call that was refused, naming the value and the limit that it exceeds."""
    items = [sge] if isinstance(sge, Sge) else list(sge or ())
    total = sum(item.length for item in items)
    if status == Status.DATA_OVERRUN:
        detail = (f"{len(items)} scatter/gather elements, at most {pair.q.wq.stride} are "
                  f"granted; {_ask(pair, 'max_initiator_sge')}, up to {c.SHMND_MAX_SGE}")
    elif status == Status.BUFFER_OVERFLOW and int(flags) & c.SHMND_OP_INLINE:
        detail = (f"{total} bytes inline, at most {pair.q.inline_size} on this queue pair; "
                  f"{_ask(pair, 'inline_size')}")
    elif status == Status.BUFFER_OVERFLOW:
        detail = f"{total} bytes, at most {pair.q.max_transfer} a request"
    elif (status == Status.NO_MORE_ENTRIES
            and c.shmnd_requests_taken(&pair.q) < pair.q.wq.depth):
        detail = _untaken(pair.initiator_cq)
    elif status == Status.NO_MORE_ENTRIES:
        detail = (f"{c.shmnd_requests_taken(&pair.q)} requests are outstanding, the queue "
                  f"holds {pair.q.wq.depth}; reap completions and post again")
    elif status == Status.CONNECTION_INVALID:
        detail = why_unconnected(pair)
    else:
        names = ", ".join(flag.name for flag in OpFlag if flag & _LEGAL[method])
        detail = f"flags {int(flags):#x} outside {_LEGAL[method]:#x}; it takes {names}"
    raise error(status, f"{pair.title}.{method}", detail)


cdef refuse_receive(ProgressCore pair, uint32_t status, object sge):
    """Raise for a Receive that was refused."""
    if (status == Status.NO_MORE_ENTRIES
            and c.shmnd_receives_outstanding(&pair.q.own) < pair.q.own.depth):
        raise error(status, f"{pair.title}.receive", _untaken(pair.receive_cq))
    if status == Status.CONNECTION_INVALID:
        raise error(status, f"{pair.title}.receive", why_unconnected(pair))
    raise error(status, f"{pair.title}.receive",
                receive_reason(status, sge, &pair.q.own, pair.q.max_transfer,
                               _ask(pair, "max_receive_sge"), _ask(pair, "receive_depth")))


cdef str _ask(ProgressCore pair, str limit):
    """Return how to request a larger limit."""
    if pair.title == "QueuePair":
        return f"ask create_queue_pair for more with {limit}"
    limit = _IN_VERSION_1[limit]
    return f"ask create_endpoint for more with {limit}" if limit else "send it from a region"


cdef str _untaken(PollingCore queue):
    """Return the reason for refusing a request that its own queue has room for."""
    return (f"its completion queue of depth {queue.depth} is full: "
            f"{c.shmnd_cq_count(&queue.raw)} results were not taken; take them and post again")


# -- requests --

cdef str reason_of_failure(ProgressCore pair, uint32_t status, uint32_t type_, uint32_t flags):
    """Return why a request ended with this status, and which process was involved."""
    cdef object peer
    if pair.q.link.mine == NULL or pair.peer is None:
        return ""
    peer = f"the peer, process {pair.peer.pid},"
    if status in _ENDED:
        return _end_of(pair, peer, status, flags >> c.SHMND_CQE_CAUSE_SHIFT)
    if (status == Status.INVALID_DEVICE_REQUEST and type_ == c.SHMND_READ
            and pair.q.outbound_read_limit == 0):
        return ("the connection allows no Reads from here: outbound_read_limit of connect or "
                "accept here, or inbound_read_limit of the peer, is 0")
    if status == Status.ACCESS_VIOLATION and type_ in (c.SHMND_READ, c.SHMND_WRITE):
        return ("the local memory is not registered for this, or the remote address and token "
                f"name no memory of {peer} with the right that it takes")
    if status == Status.ACCESS_VIOLATION:
        return ("an element is not within registered memory with the right that it takes, or that "
                "memory was truncated; a Receive and a Read need ALLOW_LOCAL_WRITE")
    if status == Status.REMOTE_ERROR:
        return f"{peer} has a Receive that is too short for it, or not in writable memory"
    if status == Status.BUFFER_OVERFLOW:
        return f"the message of {peer[:-1]} is longer than the buffers of the Receive"
    return ""


cdef str _end_of(ProgressCore pair, str peer, uint32_t status, uint32_t cause):
    """Return what ended a request with CANCELED or IO_TIMEOUT; `cause` is a `shmnd_cause`."""
    if cause == c.SHMND_CAUSE_STALL:
        return f"{peer} did not end a copy within {c.SHMND_STALL_TIMEOUT_NS // 10**9} s"
    if cause == c.SHMND_CAUSE_DEATH:
        return f"{peer} died"
    if cause == c.SHMND_CAUSE_NO_RECEIVE and status == Status.IO_TIMEOUT:
        within = (pair.q.rnr_ns - c.SHMND_COARSE_STEP_NS) * 1e-9
        return (f"{peer} posted no Receive for it within {within:g} s; "
                "post Receives there before the Send, or open the adapter here with a larger "
                "rnr_timeout")
    if cause == c.SHMND_CAUSE_PEER:
        if c.shmnd_peer_state(&pair.q) == c.SHMND_LINK_FAULT:
            return f"{peer} ended the connection by an error of its own"
        return f"{peer} disconnected"
    if cause == c.SHMND_CAUSE_FLUSH:
        return "the queue pair was flushed"
    return "the connection was ended here, or an earlier request on the queue pair failed"


cdef str _counted(object number, str thing):
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


cdef str outstanding_requests(ProgressCore pair, bint requests, bint receives):
    """Return which requests are outstanding, and with which process."""
    cdef list parts = []
    if requests:
        parts.append(_counted(pair.q.wq.end - pair.q.wq.oldest, "request"))
    if receives and not pair.q.shared:
        parts.append(_counted(c.shmnd_receives_outstanding(&pair.q.own), "Receive"))
    name = "" if pair.context is None else f" {shown(pair.context)}"
    return (f"{' and '.join(parts) or 'nothing'} of the {pair.title}{name} outstanding "
            f"with process {pair.peer.pid}")
