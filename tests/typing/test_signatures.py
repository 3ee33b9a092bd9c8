# SPDX-License-Identifier: Apache-2.0
"""The interpreter calls what a program needs for each message directly, and can describe it."""

import inspect
import types
from collections.abc import Iterator
from typing import Any

import pytest

import shmnd
import shmnd.ipc
import shmnd.nd1
from shmnd import CompletionQueue, QueuePair, Result
from shmnd.mpi import MPI

MODULES = (shmnd, shmnd.nd1, shmnd.ipc)  # the texts of MPI begin with the call, as mpi4py's do
CALLED = [
    *((QueuePair, name) for name in ("send", "receive", "read", "write")),
    *((CompletionQueue, name) for name in ("get_results", "wait", "wait_one")),
    (shmnd.SharedReceiveQueue, "receive"),
    *((shmnd.nd1.Endpoint, name) for name in ("send", "receive", "read", "write")),
    *((shmnd.nd1.CompletionQueue, name) for name in ("get_results", "wait")),
    *((shmnd.ipc.Publisher, name) for name in ("loan", "send")),
    *((shmnd.ipc.Subscriber, name) for name in ("receive", "try_receive")),
    *((shmnd.ipc.JoinableQueue, name) for name in ("get", "put")),
    *((MPI.Intracomm, name) for name in ("Send", "Recv", "Isend", "Irecv", "send", "recv")),
    *((MPI.Request, name) for name in ("Wait", "Test")),
]


def classes() -> Iterator[Any]:
    """Return each public class, which a module may load at its first use."""
    for module in MODULES:
        for name in dir(module):
            cls = getattr(module, name)
            if inspect.isclass(cls) and not name.startswith("_"):
                yield pytest.param(cls, id=f"{module.__name__}.{name}")


def methods(cls: type) -> Iterator[Any]:
    """Return the methods of a class that are of this project."""
    for name in dir(cls):
        method = inspect.getattr_static(cls, name)
        home = getattr(method, "__objclass__", cls).__module__
        if not name.startswith("_") and home.startswith("shmnd") and callable(getattr(cls, name)):
            yield getattr(cls, name)


@pytest.mark.parametrize(("cls", "name"), CALLED, ids=[f"{c.__name__}.{n}" for c, n in CALLED])
def test_a_method_on_the_path_of_a_message_is_called_directly(cls: type, name: str) -> None:
    method = inspect.getattr_static(cls, name)
    assert isinstance(method, types.MethodDescriptorType)
    assert method.__objclass__ is cls, "an inherited one is not called directly"


@pytest.mark.parametrize(
    "name", ["status", "request_type", "request_context", "queue_pair_context"]
)
def test_an_attribute_of_a_result_is_read_without_a_call(name: str) -> None:
    attribute = inspect.getattr_static(Result, name)
    assert isinstance(attribute, types.MemberDescriptorType)
    assert attribute.__doc__


@pytest.mark.parametrize("cls", list(classes()))
def test_the_parameters_of_each_method_can_be_listed(cls: type) -> None:
    for method in methods(cls):
        inspect.signature(method)
        assert "--\n" not in (method.__doc__ or ""), "the text of the signature is shown as such"
