# SPDX-License-Identifier: Apache-2.0
"""What random programs have found, as the programs they were shrunk to."""

from typing import Any

from reference.machine import Machine, program
from shmnd import CqNotify

ALONE: Any = {"connections": 1}


def test_a_message_in_parts_that_is_refused_before_its_last_part_is_a_remote_error() -> None:
    program(
        Machine,
        ("begin", ALONE),
        ("receive", {"slot": 0, "end": 0, "size": 65535}),
        ("send", {"slot": 0, "end": 1, "size": 131072, "cuts": 2, "where": 3}),
    )


def test_a_send_to_a_side_that_closes_does_not_keep_the_caller() -> None:
    """The peer failed and has not polled since: a copy into its receive was tried for ever."""
    program(
        Machine,
        ("begin", ALONE),
        ("receive", {"slot": 0, "end": 1, "size": 700_000}),
        ("one_sided", {"slot": 0, "end": 1, "size": 65537, "bad": True}),
        ("send", {"slot": 0, "end": 0, "size": 1024, "cuts": 2, "where": 3}),
        ("send", {"slot": 0, "end": 0, "size": 200_000}),
    )


def test_flush_leaves_messages_sent_before_one_that_stays() -> None:
    """The second receive refuses, the later ones prove their Sends: those keep their places."""
    program(
        Machine,
        ("begin", {"connections": 1, "depth": 64, "cq_depth": 256}),
        ("deregister", {"end": 1}),
        ("meet", {"slot": 0, "end": 0, "size": 49, "count": 5, "flags": 0x21}),
        ("flush", {"slot": 0, "end": 0}),
    )


def test_messages_behind_a_refused_message_are_canceled() -> None:
    program(
        Machine,
        ("begin", {"connections": 1, "cq_depth": 1, "separate": (True, True)}),
        ("send", {"slot": 0, "end": 0, "size": 48, "flags": 0x21}),
        ("deregister", {"end": 0}),
        ("receive", {"slot": 0, "end": 1, "size": 47, "where": 2}),
        ("meet", {"slot": 0, "end": 0, "size": 16385, "count": 6, "where": 2}),
        ("flush", {"slot": 0, "end": 0}),
    )


def test_a_message_in_parts_that_was_canceled_is_not_taken_afterwards() -> None:
    program(
        Machine,
        ("begin", {"connections": 1, "depth": 64, "cq_depth": 1, "shared": (True, True)}),
        ("meet", {"slot": 0, "end": 1, "size": 3577, "count": 4, "where": 3}),
        ("receives", {"slot": 0, "end": 1, "size": 1, "count": 4}),
        ("send", {"slot": 0, "end": 0, "size": 3577, "cuts": 4}),
    )


def test_a_large_message_that_was_copied_is_a_success_though_its_queue_had_no_room() -> None:
    program(
        Machine,
        ("begin", {"connections": 2, "depth": 3, "cq_depth": 1}),
        ("send", {"slot": 0, "end": 1, "size": 131071, "cuts": 4, "flags": 5}),
        ("meet", {"slot": 0, "end": 0, "size": 700_000, "count": 4, "where": 3}),
        ("meet", {"slot": 1, "end": 1, "size": 65536, "count": 3, "where": 2, "flags": 33}),
        ("meet", {"slot": 0, "end": 1, "size": 40, "count": 5, "flags": 5}),
    )


def test_messages_behind_a_failed_request_are_not_delivered() -> None:
    program(
        Machine,
        ("begin", {"connections": 1, "depth": 64, "cq_depth": 256, "shared": (True, True)}),
        ("deregister", {"end": 1}),
        ("meet", {"slot": 0, "end": 1, "size": 40, "count": 5, "where": 2}),
    )


def test_a_completion_that_is_taken_at_once_still_ends_a_notify() -> None:
    program(
        Machine,
        ("begin", {"connections": 1, "separate": (False, True), "shared": (True, True)}),
        ("notify", {"end": 0, "kind": CqNotify.SOLICITED}),
        ("receives", {"slot": 0, "end": 1, "size": 1, "count": 3}),
        ("notify", {"end": 1, "kind": CqNotify.ANY}),
        ("send", {"slot": 0, "end": 0, "size": 16383, "cuts": 3, "flags": 1}),
    )


def test_an_answer_does_not_complete_before_the_send_in_a_full_queue() -> None:
    """The queue holds fewer than are outstanding on it."""
    world = {
        "connections": 2, "depth": 64, "cq_depth": 1, "read_limits": (1, 1),
        "separate": (True, False), "shared": (True, False),
    }  # fmt: skip
    program(
        Machine,
        ("begin", world),
        ("receive", {"slot": 0, "end": 0, "size": 1024, "cuts": 3, "where": 1}),
        ("receives", {"slot": 0, "end": 0, "size": 131072, "count": 5}),
        ("meet", {"slot": 1, "end": 1, "size": 40, "count": 5, "flags": 2, "where": 1}),
        ("send", {"slot": 2, "end": 1, "size": 3576, "cuts": 4, "flags": 2, "where": 2}),
        ("drain", {"end": 0, "role": "receive"}),
        ("deregister", {"end": 0}),
        ("meet", {"slot": 0, "end": 0, "size": 131072, "count": 3, "flags": 33}),
    )


def test_a_rest_is_one_only_when_every_silent_send_has_arrived() -> None:
    """The reference took a side for at rest when the oldest of its silent Sends was done."""
    program(
        Machine,
        (
            "begin",
            {"connections": 1, "cq_depth": 256, "separate": (True, True), "shared": (True, True)},
        ),
        ("meet", {"slot": 0, "end": 1, "size": 700_000, "count": 4, "flags": 1, "where": 3}),
        ("settle", {}),
        ("receives", {"slot": 0, "end": 0, "size": 1025, "count": 5}),
        ("settle", {}),
        ("meet", {"slot": 0, "end": 1, "size": 3576, "count": 3, "flags": 1}),
    )


def test_notices_that_one_event_ends_during_a_poll_end_together() -> None:
    """The reference looked twice; the second look had taken the message and ended both."""
    program(
        Machine,
        ("begin", {"connections": 1, "depth": 3, "cq_depth": 1}),
        ("receives", {"slot": 0, "end": 0, "size": 65535, "count": 2}),
        ("notify", {"end": 0, "kind": CqNotify.ERRORS}),
        ("send", {"slot": 0, "end": 1, "size": 65536, "cuts": 2, "where": 3}),
        ("notify", {"end": 0, "kind": CqNotify.ANY}),
    )
