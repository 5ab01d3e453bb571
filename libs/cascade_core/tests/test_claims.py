"""Facts that do not fit a message, on a real server."""

import asyncio

import pytest
from cascade_core import facts, subjects
from cascade_core.errors import AppendConflict, Corrupt, LogUnavailable
from cascade_core.jetstream import bodies
from cascade_core.jetstream.bodies import with_bodies
from cascade_core.jetstream.claim_check import (
    CLAIM_HEADER,
    HEADER_ROOM_BYTES,
    MOST_INLINE_BYTES,
    ClaimGone,
    Claims,
    fits_message,
)
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.jetstream.pull import Pull
from cascade_core.testing.builders import RUN, SIM, chunk, launch_started
from cascade_core.testing.event_log_contract import DEADLINE_S, taken
from nats.aio.client import Client

BIG = MOST_INLINE_BYTES + 1


async def claims_held(client: Client) -> int:
    """Messages in the stream below the object store: chunks and names."""
    info = await client.jetstream().stream_info(f"OBJ_{subjects.CLAIMS}")
    return int(info.state.messages)


@pytest.mark.parametrize(
    ("size", "max_payload", "fits"),
    [
        (0, 1_048_576, True),
        (MOST_INLINE_BYTES, 8_388_608, True),
        (MOST_INLINE_BYTES + 1, 8_388_608, False),
        (262_144 - HEADER_ROOM_BYTES, 262_144, True),
        (262_144 - HEADER_ROOM_BYTES + 1, 262_144, False),
    ],
)
def test_a_message_leaves_room_for_its_headers(size: int, max_payload: int, fits: bool) -> None:
    assert fits_message(size, max_payload) is fits


async def test_a_body_at_the_limit_travels_in_its_message_and_one_byte_more_does_not(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    overhead = len(facts.encode(chunk(0, [""])))
    for seq, over in enumerate([0, 1]):
        fact = chunk(seq, ["x" * (MOST_INLINE_BYTES - overhead + over)])
        await jetstream_log.append(fact, event_id=f"log:x:{seq}")
        found = await jetstream_log.at(seq + 1)
        assert found is not None
        assert found.fact == fact
        assert (await claims_held(client) > 0) == (over == 1)


async def test_a_body_as_large_as_the_server_takes_is_stored_whole(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    fact = chunk(0, ["x" * client.max_payload])
    await jetstream_log.append(fact)
    found = await jetstream_log.last(subjects.log_of(RUN, SIM))
    assert found is not None
    assert found.fact == fact


async def test_a_repeat_leaves_no_second_claim_behind(client: Client, jetstream_log: JetStreamLog) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]), event_id="log:x:0")
    held = await claims_held(client)
    again = await jetstream_log.append(chunk(0, ["y" * BIG]), event_id="log:x:0")
    assert again.duplicate
    await jetstream_log.append_all([(chunk(0, ["z" * BIG]), "log:x:0")])
    assert await claims_held(client) == held
    found = await jetstream_log.at(1)
    assert found is not None
    assert found.fact == chunk(0, ["x" * BIG])


async def test_a_refused_fact_leaves_no_claim_behind(client: Client, jetstream_log: JetStreamLog) -> None:
    await jetstream_log.append(launch_started(attempt="a1"), first=True)
    with pytest.raises(AppendConflict):
        await jetstream_log.append(launch_started(attempt="x" * BIG), first=True)
    assert await claims_held(client) == 0


async def test_purging_a_log_drops_its_claims_without_a_trace(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]))
    await jetstream_log.append(chunk(1, ["y" * BIG]))
    await jetstream_log.append(chunk(0, ["z" * BIG], sim_id="sim-000000000001-2"))
    await jetstream_log.purge(subjects.log_of(RUN, SIM))
    assert await jetstream_log.read([subjects.ALL_LOGS]) != []
    await jetstream_log.purge(subjects.log_of(RUN, "sim-000000000001-2"))
    assert await claims_held(client) == 0


async def test_dropping_a_claim_twice_is_harmless(client: Client) -> None:
    claims = Claims(client)
    name = await claims.put("a.b", b"body")
    assert await claims.get(name) == b"body"
    assert await claims.of_subject("a.b") == [name]
    assert await claims.of_subject("a") == []
    await claims.drop(name)
    await claims.drop(name)
    assert await claims.of_subject("a.b") == []


async def test_a_claim_whose_chunks_are_dropped_while_it_is_read_is_gone_at_once(client: Client) -> None:
    claims = Claims(client)
    name = await claims.put("a.b", b"x" * 300_000)
    info = await (await client.jetstream().object_store(subjects.CLAIMS)).get_info(name)
    await client.jetstream().purge_stream(
        f"OBJ_{subjects.CLAIMS}", subject=f"$O.{subjects.CLAIMS}.C.{info.nuid}"
    )
    async with asyncio.timeout(DEADLINE_S):
        with pytest.raises(ClaimGone):
            await claims.get(name)
        await claims.drop(name)
        with pytest.raises(ClaimGone):
            await claims.get(name)


async def test_a_claim_of_other_bytes_than_were_stored_is_corrupt(client: Client) -> None:
    claims = Claims(client)
    name = await claims.put("a.b", b"x" * 10)
    info = await (await client.jetstream().object_store(subjects.CLAIMS)).get_info(name)
    chunks = f"$O.{subjects.CLAIMS}.C.{info.nuid}"
    await client.jetstream().purge_stream(f"OBJ_{subjects.CLAIMS}", subject=chunks)
    await client.jetstream().publish(chunks, b"y" * 10)
    with pytest.raises(Corrupt, match="other bytes"):
        await claims.get(name)


async def test_what_is_purged_between_its_message_and_its_claim_is_left_out(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]))
    await jetstream_log.append(chunk(1, ["small"]))
    await jetstream_log.append(chunk(0, ["y" * BIG], sim_id="sim-000000000001-2"))
    pull = Pull(client, 16)
    await pull.open([subjects.ALL], 0)
    messages = await pull.stored()
    await pull.close()
    found = await client.jetstream().get_msg(subjects.STREAM, 1)
    assert found.headers is not None
    await jetstream_log.purge(subjects.log_of(RUN, SIM))
    claims = Claims(client)
    pages = [page async for page in with_bodies(messages, claims)]
    # The small one travelled with its message.
    assert [fact.position for page in pages for fact in page] == [2, 3]
    assert await claims.of_fact(found.headers[CLAIM_HEADER], 1) is None
    assert await jetstream_log.at(1) is None


async def test_a_list_of_claims_ends_where_it_would_not_fit_in_memory(
    client: Client, jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES_AT_ONCE", 2 * BIG)
    for seq in range(5):
        await jetstream_log.append(chunk(seq, ["x" * BIG]))
    pages = [page async for page in jetstream_log.pages([subjects.ALL])]
    assert [[record.position for record in page] for page in pages] == [[1, 2], [3, 4], [5]]
    followed: list[list[int]] = []
    async with jetstream_log.follow([subjects.ALL]) as batches:
        async for batch in batches:
            followed.append([record.position for record in batch])
            if followed[-1][-1] == 5:
                break
    assert max(map(len, followed)) <= 2
    assert [position for batch in followed for position in batch] == [1, 2, 3, 4, 5]


async def test_a_follower_goes_on_behind_what_it_gave_where_a_claim_cannot_be_read(
    client: Client, jetstream_log: JetStreamLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bodies, "MOST_BYTES_AT_ONCE", 1)
    for seq in range(4):
        await jetstream_log.append(chunk(seq, ["x" * BIG]))
    real, calls = Claims.of_fact, 0

    async def failing_once(self: Claims, name: str, position: int) -> bytes | None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise LogUnavailable("no answer")
        return await real(self, name, position)

    monkeypatch.setattr(Claims, "of_fact", failing_once)
    async with jetstream_log.follow([subjects.ALL]) as batches:
        assert [record.position for record in await taken(batches, 4)] == [1, 2, 3, 4]
    calls = 0
    assert [record.position for record in await jetstream_log.read([subjects.ALL])] == [1, 2, 3, 4]


async def test_reading_and_purging_claims_leaves_no_consumer_behind(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]))
    assert await jetstream_log.at(1) is not None
    await jetstream_log.purge(subjects.log_of(RUN, SIM))
    info = await client.jetstream().stream_info(f"OBJ_{subjects.CLAIMS}")
    assert info.state.consumer_count == 0


async def test_a_claim_that_leads_nowhere_stops_the_reader(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]))
    claims = Claims(client)
    for name in await claims.of_subject(subjects.log_of(RUN, SIM)):
        await claims.drop(name)
    with pytest.raises(Corrupt, match="leads nowhere"):
        await jetstream_log.at(1)
