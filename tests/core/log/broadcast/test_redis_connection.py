"""Ways to Redis other than a plain socket that works."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import itertools
import ssl
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ops.services import Redis
from sessions_app.core.base import process_loop
from sessions_app.core.log.broadcast import redis as transport
from sessions_app.core.log.broadcast.layer import LOST, ChannelLayer
from tests.core.log.adopted import adopted_loop
from tests.core.log.broadcast.conftest import wait_until

MakeLayer = Callable[..., ChannelLayer]


class Road:
    """A way to a Redis through this process, which may be blocked so that nothing comes through any more."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.open = asyncio.Event()
        self.open.set()
        self._piping: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._writers += [writer, there_writer]
        for source, sink in ((reader, there_writer), (there_reader, writer)):
            self._piping.add(asyncio.create_task(self._pipe(source, sink)))

    async def _pipe(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                await self.open.wait()
                sink.write(data)
        except OSError:
            pass
        sink.close()

    async def close(self) -> None:
        for task in self._piping:
            task.cancel()
        await asyncio.gather(*self._piping, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for writer in self._writers), return_exceptions=True)


@asynccontextmanager
async def listening(road: Road, server: asyncio.Server) -> AsyncIterator[int]:
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await road.close()


async def talks(layer: ChannelLayer) -> None:
    channel = await layer.new_channel()
    await layer.group_add("group", channel)
    await layer.group_send("group", {"n": 1})
    assert await asyncio.wait_for(layer.receive(channel), 60) == {"n": 1}


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine that it signed itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    signed = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    certificate_file, key_file = folder / "certificate.pem", folder / "key.pem"
    certificate_file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate_file, key_file


async def test_redis_over_tls_is_talked_to_and_its_certificate_checked(
    make_layer: MakeLayer, shared_redis: Redis, tmp_path: Path
) -> None:
    certificate_file, key_file = await asyncio.to_thread(certificate, tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate_file, key_file)
    road = Road(shared_redis.port)
    async with listening(road, await asyncio.start_server(road.accept, "127.0.0.1", 0, ssl=tls)) as port:
        address = shared_redis.url().replace("redis://", "rediss://").replace(f":{shared_redis.port}/", f":{port}/")
        trusting = make_layer(f"{address}?ssl_ca_certs={certificate_file}")
        await talks(trusting)
        careless = make_layer(f"{address}?ssl_cert_reqs=none")
        await talks(careless)
        strict = make_layer(address)
        channel = await asyncio.wait_for(strict.new_channel(), 60)
        await asyncio.wait_for(strict.group_add("group", channel), 60)
        assert not strict.pubsub_up()
        for layer in (trusting, careless, strict):
            await asyncio.to_thread(layer.close)


async def test_redis_over_a_unix_socket_is_talked_to(make_layer: MakeLayer, shared_redis: Redis, tmp_path: Path) -> None:
    road = Road(shared_redis.port)
    place = tmp_path / "redis.sock"
    password = shared_redis.url().split("@")[0].split(":")[-1]
    async with listening(road, await asyncio.start_unix_server(road.accept, place)):
        layer = make_layer(f"unix://:{password}@{place}?db=4")
        await talks(layer)
        await asyncio.to_thread(layer.close)


async def test_a_redis_that_falls_silent_counts_as_down_and_comes_back(make_layer: MakeLayer, shared_redis: Redis) -> None:
    road = Road(shared_redis.port)
    async with listening(road, await asyncio.start_server(road.accept, "127.0.0.1", 0)) as port:
        layer = make_layer(shared_redis.url().replace(f":{shared_redis.port}/", f":{port}/"))
        channel = await layer.new_channel()
        await layer.group_add("group", channel)
        assert layer.pubsub_up()
        road.open.clear()
        await wait_until(lambda: not layer.pubsub_up(), "the silence is noticed")
        assert await layer.receive(channel) == {"type": LOST}
        road.open.set()
        await wait_until(layer.pubsub_up, "it is back")
        assert await layer.receive(channel) == {"type": LOST}
        await layer.group_send("group", {"n": 1})
        assert await asyncio.wait_for(layer.receive(channel), 60) == {"n": 1}
        await asyncio.to_thread(layer.close)


@pytest.mark.parametrize("address", ["redis://localhost:1/0", "unix:///nowhere/redis.sock"])
async def test_a_redis_that_is_not_there_is_no_error_of_the_callers(address: str, make_layer: MakeLayer) -> None:
    layer = make_layer(address)
    channel = await asyncio.wait_for(layer.new_channel(), 60)
    await asyncio.wait_for(layer.group_add("group", channel), 60)
    assert not layer.pubsub_up()
    assert not layer.publish("group", [{"n": 1}])


async def test_whoever_gives_up_joining_disturbs_nobody(
    shared_redis: Redis, make_layer: MakeLayer, caplog: pytest.LogCaptureFixture
) -> None:
    road = Road(shared_redis.port)
    async with listening(road, await asyncio.start_server(road.accept, "127.0.0.1", 0)) as port:
        layer = make_layer(shared_redis.url().replace(f":{shared_redis.port}/", f":{port}/"))
        await talks(layer)
        road.open.clear()
        channel = await layer.new_channel()
        joining = asyncio.create_task(layer.group_add("late", channel))
        await asyncio.sleep(0)
        joining.cancel()
        with pytest.raises(asyncio.CancelledError):
            await joining
        road.open.set()
        await talks(layer)
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "broadcast"}


async def test_an_adopted_loop_carries_the_connection_until_it_is_released(make_layer: MakeLayer, shared_redis: Redis) -> None:
    before = _threads()
    here, there = make_layer(shared_redis.url()), make_layer(shared_redis.url())
    process_loop.adopt()
    try:
        await talks(here)
        await talks(there)
        channel = await here.new_channel()
        await here.group_add("late", channel)
        await there.group_send("late", {"n": 1})
        assert await asyncio.wait_for(here.receive(channel), 60) == {"n": 1}
        assert _threads() <= before
    finally:
        await process_loop.release()
    # It continues in a thread, and what was sent meanwhile may be lost.
    await wait_until(here.pubsub_up, "it is connected again")
    assert len(_threads() - before) == 1
    await there.group_send("late", {"n": 2})
    assert [await asyncio.wait_for(here.receive(channel), 60) for _ in range(2)] == [{"type": LOST}, {"n": 2}]
    for layer in (here, there):
        await asyncio.to_thread(layer.close)


async def test_threads_and_other_loops_talk_over_the_loop_that_carries_the_connection(
    make_layer: MakeLayer, shared_redis: Redis
) -> None:
    before = _threads()
    with adopted_loop() as carrier:
        layer = make_layer(shared_redis.url())
        channel = await layer.new_channel()
        await layer.group_add("group", channel)
        assert await asyncio.to_thread(layer.publish, "group", [{"n": 1}])
        carrier.do(layer.group_send("group", {"n": 2}))
        await layer.group_send("group", {"n": 3})
        assert [await asyncio.wait_for(layer.receive(channel), 60) for _ in range(3)] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert _threads() <= before

        async def leave_in_a_thread_and_join() -> None:
            leaving = threading.Thread(target=asyncio.run, args=(layer.group_discard("group", channel),))
            leaving.start()
            leaving.join()
            await layer.group_add("group", channel)

        # The leave came first, so it takes effect first, although the loop that joins has the connection.
        carrier.do(leave_in_a_thread_and_join())
        await layer.group_send("group", {"n": 4})
        assert await asyncio.wait_for(layer.receive(channel), 60) == {"n": 4}
        await asyncio.to_thread(layer.close)


async def test_a_loop_that_was_blocked_does_not_take_redis_for_down(
    make_layer: MakeLayer, shared_redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    road = Road(shared_redis.port)
    for name, seconds in (("_PING_SECONDS", 0.01), ("_CHECK_SECONDS", 0.01), ("_ANSWER_SECONDS", 0.02), ("_LATE_SECONDS", 1.0)):
        monkeypatch.setattr(transport, name, seconds)
    process_loop.adopt()
    try:
        async with listening(road, await asyncio.start_server(road.accept, "127.0.0.1", 0)) as port:
            layer = make_layer(shared_redis.url().replace(f":{shared_redis.port}/", f":{port}/"))
            channel = await layer.new_channel()
            await layer.group_add("group", channel)
            clock = itertools.count(step=10)
            with monkeypatch.context() as blocked:
                # Each time the loop looks at the clock, many seconds have passed.
                blocked.setattr(transport, "time", SimpleNamespace(monotonic=lambda: float(next(clock))))
                road.open.clear()
                # Ten checks; two on time without an answer are enough for a Redis that is down.
                await wait_until(lambda: next(clock) > 200, "the answer is waited for")
                assert layer.pubsub_up()
                road.open.set()
                await layer.group_send("group", {"n": 1})
                assert await asyncio.wait_for(layer.receive(channel), 60) == {"n": 1}
            road.open.clear()
            await wait_until(lambda: not layer.pubsub_up(), "the silence is noticed")
            road.open.set()
            layer.close()
    finally:
        await process_loop.release()
