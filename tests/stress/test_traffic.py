# SPDX-License-Identifier: Apache-2.0
"""No message is lost, doubled, torn or reordered, whatever it passes through."""

import os
import random

import pytest

from stress.traffic import Plan, run

SEED = int(os.environ.get("SHMND_SEED", "0")) or random.SystemRandom().randrange(1 << 30)

PLANS = {
    "segment to segment": {},
    "segment to private": {"receiver_memory": "private"},
    "private to segment": {"sender_memory": "private"},
    "private to private": {"sender_memory": "private", "receiver_memory": "private"},
    "private out of reach": {
        "sender_memory": "private",
        "receiver_memory": "private",
        "reach": False,
        "messages": 600,
    },
    "shared receive queue": {"srq": True},
    "shared receive queue, private": {
        "srq": True,
        "sender_memory": "private",
        "receiver_memory": "private",
    },
    "shared receive queue, out of reach": {
        "srq": True,
        "sender_memory": "private",
        "receiver_memory": "private",
        "reach": False,
        "messages": 600,
    },
    "many connections": {"connections": 24, "messages": 300, "largest": 20_000, "depth": 4},
    "many connections, shared": {
        "connections": 24,
        "messages": 300,
        "largest": 20_000,
        "depth": 4,
        "srq": True,
    },
    "one receive at a time": {"depth": 1, "messages": 600},
    "large": {"largest": 8_000_000, "messages": 100, "depth": 4, "connections": 1},
    "two queues": {"two_queues": True},
    "batches": {"largest": 3000, "messages": 5000, "batch": "submitted"},
    "batches of small ones": {
        "largest": 64,
        "messages": 20_000,
        "depth": 64,
        "batch": "submitted",
    },
    "batches left open": {"largest": 3000, "messages": 3000, "batch": "left open"},
    "batches, shared": {"largest": 3000, "messages": 3000, "srq": True, "batch": "submitted"},
    "batches, one receive at a time": {"depth": 1, "messages": 600, "batch": "submitted"},
    "small": {"largest": 64, "messages": 20_000, "connections": 3},
}


@pytest.mark.stress
@pytest.mark.parametrize("name", list(PLANS))
def test_every_message_arrives_once_whole_and_in_order(name: str) -> None:
    plan = Plan(seed=SEED, **PLANS[name])
    print(f"seed: SHMND_SEED={SEED}")
    assert run(plan) == plan.messages * plan.connections
