# SPDX-License-Identifier: Apache-2.0
"""Messages that need no reply: each is sent once, whatever comes between."""

import functools
import itertools
from collections import deque

import shmnd.broker
from interrupting import inside, interrupted
from shmnd.broker.place import Place
from shmnd.broker.posts import Posts
from unit.broker.client_kit import Make, greeted

_CLIENT = inside(shmnd.broker)


def test_a_handler_that_raises_has_no_post_sent_twice(place: Place, make: Make) -> None:
    """It raises at each place of a post in turn; the post is dropped only before it is taken."""
    dropped = 0
    with greeted(place, make) as (broker, client):
        for number in itertools.count():
            post = functools.partial(client.post, "first", number=number)
            if not interrupted(number, post, _CLIENT):
                break
            client.post("second")
            came = []
            while (message := broker.read())["op"] != "second":
                came.append(message["number"])
            assert came in ([], [number])
            assert len(came) == 1 or dropped == number, "a later place drops no post"
            dropped += not came
    assert number > dropped + 5


def test_posts_of_a_session_that_ended_are_not_sent_to_the_next() -> None:
    """A handler within the sending of one may find another broker."""
    posts = Posts()
    sent: list[bytes] = []

    def send(post: bytes, noted: deque[int]) -> bool:
        sent.append(post)
        noted.append(len(post))
        if post == b"a":
            posts.clear()
            posts.append(b"c")
            assert posts.flush(send), "the call further up the stack does it"
        return True

    posts.append(b"a")
    posts.append(b"b")
    assert posts.flush(send)
    assert sent == [b"a", b"c"]
    assert not posts
