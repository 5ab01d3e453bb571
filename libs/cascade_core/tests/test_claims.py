"""Facts that do not fit a message, on a real server."""

import pytest
from cascade_core import facts, subjects
from cascade_core.errors import AppendConflict, Corrupt
from cascade_core.jetstream.claim_check import HEADER_ROOM_BYTES, MOST_INLINE_BYTES, Claims, fits_message
from cascade_core.jetstream.log import JetStreamLog
from cascade_core.testing.builders import RUN, SIM, chunk, launch_started
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


async def test_a_claim_that_leads_nowhere_stops_the_reader(
    client: Client, jetstream_log: JetStreamLog
) -> None:
    await jetstream_log.append(chunk(0, ["x" * BIG]))
    claims = Claims(client)
    for name in await claims.of_subject(subjects.log_of(RUN, SIM)):
        await claims.drop(name)
    with pytest.raises(Corrupt, match="leads nowhere"):
        await jetstream_log.at(1)
