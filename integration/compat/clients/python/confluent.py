"""The driver of confluent-kafka, which is librdkafka."""

import time

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic, ResourceType

import common

TIMEOUT = 20  # seconds


class Driver:
    def __init__(self, bootstrap):
        self.base = {"bootstrap.servers": bootstrap}
        self.admin = AdminClient(self.base)

    @staticmethod
    def done(futures):
        """The results of calls of the admin client."""
        return {k: f.result(TIMEOUT) for k, f in futures.items()}

    def create(self, o):
        self.done(self.admin.create_topics([NewTopic(o["topic"], o["partitions"], 3)]))

    @staticmethod
    def send(producer, o):
        got = []
        for key, value, headers in common.records(o):
            producer.produce(o["topic"], value, key, o["partition"], headers=headers, on_delivery=lambda e, m: got.append((e, m.offset())))
        if producer.flush(TIMEOUT):
            raise TimeoutError("not all records were delivered")
        for error, _ in got:
            if error:
                raise KafkaException(error)
        return [offset for _, offset in got]

    def produce(self, o):
        producer = Producer({
            **self.base,
            "acks": o["acks"],
            "compression.type": o.get("codec", "none"),
            "enable.idempotence": o.get("idempotent", False),
            "message.max.bytes": 1048588,
        })
        return {"offsets": self.send(producer, o)}

    def transact(self, o):
        producer = Producer({**self.base, "transactional.id": o["id"]})
        producer.init_transactions(TIMEOUT)
        producer.begin_transaction()
        self.send(producer, o)
        if "group" in o:
            consumer = Consumer({**self.base, "group.id": o["group"]})
            offsets = [TopicPartition(o["topic"], o["partition"], o["offset"])]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT)
            consumer.close()
        if o.get("abort"):
            producer.abort_transaction(TIMEOUT)
        else:
            producer.commit_transaction(TIMEOUT)

    def fetch(self, o):
        level = "read_committed" if o.get("committed") else "read_uncommitted"
        consumer = Consumer({**self.base, "group.id": "none", "isolation.level": level, "enable.auto.commit": False})
        consumer.assign([TopicPartition(o["topic"], o["partition"], o["offset"])])
        got = []
        deadline = time.monotonic() + TIMEOUT
        while len(got) < o["count"] and time.monotonic() < deadline:
            m = consumer.poll(0.2)
            if m is not None:
                if m.error():
                    raise KafkaException(m.error())
                got.append(common.record(m.key(), m.value(), m.headers(), m.offset()))
        consumer.close()
        return {"records": got}

    def at(self, o):
        consumer = Consumer({**self.base, "group.id": "none"})
        found = consumer.offsets_for_times([TopicPartition(o["topic"], o["partition"], o["time"])], TIMEOUT)
        consumer.close()
        return {"offset": found[0].offset}

    def member(self, o):
        pass

    def topics(self, o):
        return {"names": list(self.admin.list_topics(timeout=TIMEOUT).topics)}

    def describe(self, o):
        return {"number": len(self.admin.list_topics(o["topic"], timeout=TIMEOUT).topics[o["topic"]].partitions)}

    def grow(self, o):
        self.done(self.admin.create_partitions([NewPartitions(o["topic"], o["partitions"])]))

    def configure(self, o):
        entry = ConfigEntry(o["name"], o["value"], incremental_operation=AlterConfigOpType.SET)
        self.done(self.admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, o["topic"], incremental_configs=[entry])]))

    def config(self, o):
        entries = next(iter(self.done(self.admin.describe_configs([ConfigResource(ResourceType.TOPIC, o["topic"])])).values()))
        return {"text": entries[o["name"]].value}

    def groups(self, o):
        return {"names": [g.group_id for g in self.admin.list_consumer_groups().result(TIMEOUT).valid]}

    def group(self, o):
        g = self.admin.describe_consumer_groups([o["group"]])[o["group"]].result(TIMEOUT)
        return {"text": g.state.name.title(), "number": len(g.members)}

    def delete(self, o):
        self.done(self.admin.delete_topics([o["topic"]]))


def member(bootstrap, group, topic):
    ended, assignment = common.ended(), common.Assignment()
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 300,
        "session.timeout.ms": 6000, "heartbeat.interval.ms": 500,
    })
    consumer.subscribe([topic])
    while not ended.is_set():
        m = consumer.poll(0.1)
        assignment.show(f"{p.topic}-{p.partition}" for p in consumer.assignment())
        if m is not None and not m.error():
            common.say(f"read {m.partition()} {m.offset()}")
    consumer.unsubscribe()
    consumer.close()


common.main(Driver, member)
