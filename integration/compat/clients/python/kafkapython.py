"""The driver of kafka-python."""

import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.structs import OffsetAndMetadata

import common

TIMEOUT = 20  # seconds


class Driver:
    def __init__(self, bootstrap):
        self.bootstrap = bootstrap.split(",")
        self.admin = KafkaAdminClient(bootstrap_servers=self.bootstrap)

    def create(self, o):
        self.admin.create_topics({o["topic"]: {"num_partitions": o["partitions"], "replication_factor": 3}})

    @staticmethod
    def send(producer, o):
        sent = [producer.send(o["topic"], value, key, headers, o["partition"]) for key, value, headers in common.records(o)]
        producer.flush(TIMEOUT)
        return [f.get(TIMEOUT).offset for f in sent]

    def produce(self, o):
        acks = o["acks"] if o["acks"] == "all" else int(o["acks"])
        codec = o.get("codec", "none")
        producer = KafkaProducer(
            bootstrap_servers=self.bootstrap, acks=acks, compression_type=None if codec == "none" else codec,
            enable_idempotence=o.get("idempotent", False))
        try:
            return {"offsets": self.send(producer, o)}
        finally:
            producer.close(TIMEOUT)

    def transact(self, o):
        producer = KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=o["id"])
        try:
            producer.init_transactions()
            producer.begin_transaction()
            self.send(producer, o)
            if "group" in o:
                offsets = {TopicPartition(o["topic"], o["partition"]): OffsetAndMetadata(o["offset"], "", -1)}
                producer.send_offsets_to_transaction(offsets, o["group"])
            if o.get("abort"):
                producer.abort_transaction()
            else:
                producer.commit_transaction()
        finally:
            producer.close(TIMEOUT)

    def fetch(self, o):
        level = "read_committed" if o.get("committed") else "read_uncommitted"
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None, isolation_level=level)
        partition = TopicPartition(o["topic"], o["partition"])
        consumer.assign([partition])
        consumer.seek(partition, o["offset"])
        got = []
        deadline = time.monotonic() + TIMEOUT
        while len(got) < o["count"] and time.monotonic() < deadline:
            for m in consumer.poll(timeout_ms=200).get(partition, []):
                got.append(common.record(m.key, m.value, m.headers, m.offset))
        consumer.close()
        return {"records": got}

    def at(self, o):
        consumer = KafkaConsumer(bootstrap_servers=self.bootstrap, group_id=None)
        partition = TopicPartition(o["topic"], o["partition"])
        found = consumer.offsets_for_times({partition: o["time"]})[partition]
        consumer.close()
        return {"offset": found.offset}

    def member(self, o):
        pass

    def topics(self, o):
        return {"names": self.admin.list_topics()}

    def describe(self, o):
        return {"number": len(self.admin.describe_topics([o["topic"]])[0]["partitions"])}

    def grow(self, o):
        self.admin.create_partitions({o["topic"]: o["partitions"]})

    def configure(self, o):
        self.admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, o["topic"], {o["name"]: o["value"]})])

    def config(self, o):
        found = self.admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, o["topic"], [o["name"]])])
        return {"text": found["topic"][o["topic"]][o["name"]]["value"]}

    def groups(self, o):
        return {"names": [g["group_id"] for g in self.admin.list_groups()]}

    def group(self, o):
        g = self.admin.describe_groups([o["group"]])[o["group"]]
        return {"text": g["group_state"], "number": len(g["members"])}

    def delete(self, o):
        self.admin.delete_topics([o["topic"]])


def member(bootstrap, group, topic):
    ended, assignment = common.ended(), common.Assignment()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap.split(","), group_id=group, auto_offset_reset="earliest", auto_commit_interval_ms=300,
        session_timeout_ms=6000, heartbeat_interval_ms=500)
    while not ended.is_set():
        polled = consumer.poll(timeout_ms=100)
        assignment.show(f"{p.topic}-{p.partition}" for p in consumer.assignment())
        for messages in polled.values():
            for m in messages:
                common.say(f"read {m.partition} {m.offset}")
    consumer.unsubscribe()
    consumer.close()


common.main(Driver, member)
