"""The driver of aiokafka."""

import asyncio
import signal
import time

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

import common

TIMEOUT = 20  # seconds


class Driver:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap
        self.loop = asyncio.new_event_loop()

    def __getattr__(self, name):
        """Each operation is a coroutine, `do_NAME`."""
        operation = getattr(type(self), "do_" + name, None)
        if operation is None:
            raise AttributeError(name)
        return lambda o: self.loop.run_until_complete(asyncio.wait_for(operation(self, o), 2 * TIMEOUT))

    async def ask(self, call):
        """What a call of the admin client gives."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return await call(admin)
        finally:
            await admin.close()

    async def do_create(self, o):
        await self.ask(lambda admin: admin.create_topics([NewTopic(o["topic"], o["partitions"], 3)]))

    @staticmethod
    async def send(producer, o):
        sent = [await producer.send(o["topic"], value, key, o["partition"], headers=headers) for key, value, headers in common.records(o)]
        await producer.flush()
        return [await s for s in sent]

    async def do_produce(self, o):
        acks = o["acks"] if o["acks"] == "all" else int(o["acks"])
        codec = o.get("codec", "none")
        producer = AIOKafkaProducer(
            bootstrap_servers=self.bootstrap, acks=acks, compression_type=None if codec == "none" else codec,
            enable_idempotence=o.get("idempotent", False))
        await producer.start()
        try:
            metadata = await self.send(producer, o)
        finally:
            await producer.stop()
        return {"offsets": [] if acks == 0 else [m.offset for m in metadata]}

    async def do_transact(self, o):
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=o["id"])
        await producer.start()
        try:
            await producer.begin_transaction()
            await self.send(producer, o)
            if "group" in o:
                await producer.send_offsets_to_transaction({TopicPartition(o["topic"], o["partition"]): o["offset"]}, o["group"])
            if o.get("abort"):
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
        finally:
            await producer.stop()

    async def do_fetch(self, o):
        level = "read_committed" if o.get("committed") else "read_uncommitted"
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap, isolation_level=level)
        partition = TopicPartition(o["topic"], o["partition"])
        await consumer.start()
        got = []
        try:
            consumer.assign([partition])
            consumer.seek(partition, o["offset"])
            deadline = time.monotonic() + TIMEOUT
            while len(got) < o["count"] and time.monotonic() < deadline:
                for m in (await consumer.getmany(partition, timeout_ms=200)).get(partition, []):
                    got.append(common.record(m.key, m.value, m.headers, m.offset))
        finally:
            await consumer.stop()
        return {"records": got}

    async def do_at(self, o):
        consumer = AIOKafkaConsumer(bootstrap_servers=self.bootstrap)
        partition = TopicPartition(o["topic"], o["partition"])
        await consumer.start()
        try:
            found = await consumer.offsets_for_times({partition: o["time"]})
        finally:
            await consumer.stop()
        return {"offset": found[partition].offset}

    async def do_member(self, o):
        pass

    async def do_topics(self, o):
        return {"names": await self.ask(lambda admin: admin.list_topics())}

    async def do_describe(self, o):
        topics = await self.ask(lambda admin: admin.describe_topics([o["topic"]]))
        return {"number": len(topics[0]["partitions"])}

    async def do_grow(self, o):
        await self.ask(lambda admin: admin.create_partitions({o["topic"]: NewPartitions(o["partitions"])}))

    async def do_configure(self, o):
        resource = ConfigResource(ConfigResourceType.TOPIC, o["topic"], {o["name"]: o["value"]})
        await self.ask(lambda admin: admin.alter_configs([resource]))

    async def do_config(self, o):
        resource = ConfigResource(ConfigResourceType.TOPIC, o["topic"], {o["name"]: None})
        replies = await self.ask(lambda admin: admin.describe_configs([resource]))
        return {"text": {e[0]: e[1] for e in replies[0].resources[0][4]}[o["name"]]}

    async def do_groups(self, o):
        return {"names": [g[0] for g in await self.ask(lambda admin: admin.list_consumer_groups())]}

    async def do_group(self, o):
        replies = await self.ask(lambda admin: admin.describe_consumer_groups([o["group"]]))
        _, _, state, _, _, members, *_ = replies[0].groups[0]
        return {"text": state, "number": len(members)}

    async def do_delete(self, o):
        await self.ask(lambda admin: admin.delete_topics([o["topic"]]))


async def poll(bootstrap, group, topic):
    """Is a member until SIGTERM."""
    ended, assignment = asyncio.Event(), common.Assignment()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", auto_commit_interval_ms=300,
        session_timeout_ms=6000, heartbeat_interval_ms=500)
    await consumer.start()
    while not ended.is_set():
        polled = await consumer.getmany(timeout_ms=100)
        assignment.show(f"{p.topic}-{p.partition}" for p in consumer.assignment())
        for messages in polled.values():
            for m in messages:
                common.say(f"read {m.partition} {m.offset}")
    await consumer.stop()


common.main(Driver, lambda *arguments: asyncio.run(poll(*arguments)))
