# SPDX-License-Identifier: Apache-2.0
"""The names of version 1, their parameters in order, and what these are by default."""

import inspect

import pytest

import shmnd.nd1 as nd

EXPECTED = {
    "Provider.query_address_list": "()",
    "Provider.open_adapter": "(host)",
    "Adapter.query": "(version=1)",
    "Adapter.query_into": "(version, buffer)",
    "Adapter.create_completion_queue": "(entries)",
    "Adapter.register_memory": "(buffer)",
    "Adapter.deregister_memory": "(handle)",
    "Adapter.create_memory_window": "(invalidate_result=None)",
    "Adapter.create_connector": "()",
    "Adapter.listen": "(backlog=0, protocol=6, port=0)",
    "Adapter.get_file_handle": "()",
    "Adapter.allocate": "(nbytes)",
    "CompletionQueue.resize": "(entries)",
    "Connector.create_endpoint": (
        "(inbound_cq, outbound_cq, inbound_entries, outbound_entries, inbound_sge, outbound_sge, "
        "inbound_read_limit=0, outbound_read_limit=0)"
    ),
    "Connector.connect": (
        "(endpoint, address_of_peer, protocol=6, local_port=0, private_data=b'')"
    ),
    "Connector.complete_connect": "()",
    "Connector.accept": "(endpoint, private_data=b'')",
    "Connector.reject": "(private_data=b'')",
    "Connector.get_connection_data": "()",
    "Connector.get_connection_data_into": "(buffer)",
    "Connector.get_local_address": "()",
    "Connector.get_local_address_into": "(buffer)",
    "Connector.get_peer_address": "()",
    "Connector.get_peer_address_into": "(buffer)",
    "Connector.notify_disconnect": "()",
    "Connector.disconnect": "()",
    "Listen.get_connection_request": "(connector)",
    "Endpoint.send": "(result, sges, flags=0)",
    "Endpoint.send_and_invalidate": "(result, sges, descriptor, flags=0)",
    "Endpoint.receive": "(result, sges)",
    "Endpoint.bind": "(result, memory_handle, memory_window, address, length, flags)",
    "Endpoint.invalidate": "(result, memory_window, flags=0)",
    "Endpoint.read": "(result, sges, descriptor, offset, flags=0)",
    "Endpoint.write": "(result, sges, descriptor, offset, flags=0)",
    "Endpoint.start_request_batch": "()",
    "Endpoint.submit_request_batch": "()",
    "Endpoint.flush": "()",
    "Sge": "(buffer_or_address, length, memory_handle)",
    "MwDescriptor": "(base, length, token)",
}

_OVERLAPPED = {"cancel_overlapped_requests", "get_overlapped_result"}
EXTENSIONS: dict[str, set[str]] = {
    "Adapter": {*_OVERLAPPED, "control", "query_address_list", "query_address_list_into"},
    "CompletionQueue": {
        *_OVERLAPPED,
        *("fileno", "get_notify_affinity", "get_results", "notify", "spin", "wait", "wait_one"),
    },
    "Connector": _OVERLAPPED,
    "Endpoint": {"max_inline_data"},
    "Listen": {*_OVERLAPPED, "assigned_port", "get_local_address"},
}
"""The other names of the interface, and those of version 2 that are of use here, too."""


@pytest.mark.parametrize("name", EXPECTED)
def test_a_call_takes_its_parameters(name: str) -> None:
    owner, _, method = name.partition(".")
    target = getattr(nd, owner)
    signature = inspect.signature(getattr(target, method) if method else target)
    shown = [
        str(parameter.replace(annotation=inspect.Parameter.empty))
        for parameter in signature.parameters.values()
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY and parameter.name != "self"
    ]
    assert f"({', '.join(shown)})" == EXPECTED[name]


def test_every_name_is_exported_and_documented() -> None:
    for name in nd.__all__:
        assert getattr(nd, name) is not None
        if inspect.isclass(getattr(nd, name)):
            assert inspect.getdoc(getattr(nd, name))


WANTED = {
    owner: {name.partition(".")[2] for name in EXPECTED if name.startswith(f"{owner}.")}
    | EXTENSIONS.get(owner, set())
    | {"close"}
    for owner in ("Adapter", "CompletionQueue", "Connector", "Endpoint", "Listen", "MemoryWindow")
}


def test_an_object_shows_the_interface_and_nothing_else() -> None:
    with nd.Provider().open_adapter("127.0.0.1") as adapter:
        cq, connector = adapter.create_completion_queue(8), adapter.create_connector()
        made = {
            "Adapter": adapter,
            "CompletionQueue": cq,
            "Connector": connector,
            "Endpoint": connector.create_endpoint(cq, cq, 4, 4, 1, 1),
            "Listen": adapter.listen(),
            "MemoryWindow": adapter.create_memory_window(),
        }
        for owner, thing in made.items():
            assert {name for name in dir(thing) if name[0] != "_"} == WANTED[owner], owner
