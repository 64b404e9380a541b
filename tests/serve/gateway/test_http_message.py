"""Messages out of a stream of bytes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuloom.serve.gateway.http_message import (
    MOST_HEAD_BYTES,
    BadMessageError,
    Framing,
    Message,
    answer,
    forwarded,
    header,
    post,
)

BODIES = st.lists(st.binary(max_size=50), max_size=5)


def take_all(framing: Framing) -> list[Message]:
    found = []
    while (message := framing.take()) is not None:
        found.append(message)
    return found


@given(bodies=BODIES, cuts=st.lists(st.integers(1, 40), max_size=50))
def test_however_the_bytes_arrive_the_messages_are_the_same(bodies: list[bytes], cuts: list[int]) -> None:
    data = b"".join(post("/p", body) for body in bodies)
    framing, found = Framing(), []
    for cut in [*cuts, len(data)]:
        piece, data = data[:cut], data[cut:]
        framing.feed(piece)
        found += take_all(framing)
    assert [message.body for message in found] == bodies
    assert not framing.begun


@given(st.binary(max_size=200))
def test_anything_else_is_refused_or_waited_for(data: bytes) -> None:
    framing = Framing()
    framing.feed(data)
    with suppress(BadMessageError):
        take_all(framing)


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"x" * (MOST_HEAD_BYTES + 1), 431),
    ],
)
def test_what_is_not_spoken_here(head: bytes, status: int) -> None:
    framing = Framing()
    framing.feed(head)
    with pytest.raises(BadMessageError) as refused:
        framing.take()
    assert refused.value.status == status


def test_headers_between_neighbours_are_not_passed_on() -> None:
    between = b"Host: me\r\nConnection: close\r\nExpect: 100-continue\r\n"
    head = b"POST /x HTTP/1.0\r\n" + between + b"X-Kept: 1\r\nContent-Length: 2\r\n\r\n"
    passed = forwarded(Message(head, b"ab"))
    assert passed == b"POST /x HTTP/1.1\r\nHost: triton\r\nX-Kept: 1\r\nContent-Length: 2\r\n\r\nab"


def test_who_wants_to_close() -> None:
    assert Message(b"GET / HTTP/1.1\r\nConnection: Close\r\n\r\n", b"").closes
    assert Message(b"GET / HTTP/1.0\r\n\r\n", b"").closes
    assert not Message(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", b"").closes
    assert not Message(b"GET / HTTP/1.1\r\n\r\n", b"").closes


def test_an_answer_says_its_length() -> None:
    framing = Framing()
    framing.feed(answer(404, "Not Found", b"{}"))
    message = framing.take()
    assert message is not None
    assert (message.status, message.body, header(message.head, b"content-length")) == (404, b"{}", b"2")
