// The driver of kafkajs, see ../README.md.
"use strict";

const readline = require("node:readline");
const { CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const [mode, bootstrap, group, topic] = process.argv.slice(2);
const kafka = new Kafka({
  brokers: bootstrap.split(","),
  logLevel: logLevel.ERROR,
  logCreator: () => (entry) => console.error(JSON.stringify(entry)), // standard output is the runner's
});

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };
const fetchMillis = 20000;

class Absent extends Error {}

const decoded = (text) => (text === null ? null : Buffer.from(text, "base64"));
const encoded = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString("base64"));

// A client's headers are an object: values with the same name are an array.
function headersOf(list) {
  const all = {};
  for (const { key, value } of list ?? []) {
    (all[key] ??= []).push(decoded(value));
  }
  return all;
}

function headersIn(all) {
  return Object.entries(all ?? {}).flatMap(([key, value]) => [value].flat().map((v) => ({ key, value: encoded(v) })));
}

function messages(order) {
  return order.records.map((r) => ({ key: decoded(r.key), value: decoded(r.value), headers: headersOf(r.headers), partition: order.partition }));
}

async function connected(client, use) {
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.disconnect();
  }
}

const admin = (use) => connected(kafka.admin(), use);

async function produce(o) {
  const codec = o.codec ?? "none";
  if (!(codec in codecs)) {
    throw new Absent(`${codec} needs a codec that is brought along`);
  }
  const acks = o.acks === "all" ? -1 : Number(o.acks);
  const request = { topic: o.topic, acks, compression: codecs[codec], messages: messages(o) };
  const producer = kafka.producer({ idempotent: o.idempotent ?? false, maxInFlightRequests: 1 });
  if (request.messages.some((m) => m.value?.length > 100000)) { // it sends what it is given in one batch, which must fit into max.message.bytes
    await connected(producer, async (p) => {
      for (const message of request.messages) {
        await p.send({ ...request, messages: [message] });
      }
    });
  } else {
    await connected(producer, (p) => p.send(request));
  }
  return {};
}

async function transact(o) {
  await connected(kafka.producer({ transactionalId: o.id, idempotent: true, maxInFlightRequests: 1 }), async (producer) => {
    const transaction = await producer.transaction();
    await transaction.send({ topic: o.topic, messages: messages(o) });
    if (o.group !== undefined) {
      const partitions = [{ partition: o.partition, offset: String(o.offset) }];
      await transaction.sendOffsets({ consumerGroupId: o.group, topics: [{ topic: o.topic, partitions }] });
    }
    await (o.abort ? transaction.abort() : transaction.commit());
  });
}

// kafkajs reads only as a member of a group: each fetch has a group of its own, of which it wants one partition.
async function fetch(o) {
  const consumer = kafka.consumer({ groupId: `fetch-${process.pid}-${Date.now()}`, readUncommitted: !o.committed, maxWaitTimeInMs: 200 });
  return connected(consumer, async () => {
    await consumer.subscribe({ topic: o.topic, fromBeginning: true });
    const records = [];
    await new Promise((resolve, reject) => {
      const timer = setTimeout(resolve, fetchMillis);
      const done = () => {
        clearTimeout(timer);
        resolve();
      };
      consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error));
      consumer.on(consumer.events.GROUP_JOIN, () => {
        consumer.seek({ topic: o.topic, partition: o.partition, offset: String(o.offset) });
      });
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ partition, message: m }) => {
            if (partition !== o.partition || Number(m.offset) < o.offset || records.length >= o.count) {
              return;
            }
            records.push({ key: encoded(m.key), value: encoded(m.value), headers: headersIn(m.headers), offset: Number(m.offset) });
            if (records.length === o.count) {
              done();
            }
          },
        })
        .catch(reject);
    });
    return { records };
  });
}

const operations = {
  produce,
  transact,
  fetch,
  member: async () => {},
  create: (o) => admin((a) => a.createTopics({ topics: [{ topic: o.topic, numPartitions: o.partitions, replicationFactor: 3 }] })),
  at: (o) => admin(async (a) => {
    const found = await a.fetchTopicOffsetsByTimestamp(o.topic, o.time);
    return { offset: Number(found.find((p) => p.partition === o.partition).offset) };
  }),
  topics: () => admin(async (a) => ({ names: await a.listTopics() })),
  describe: (o) => admin(async (a) => ({ number: (await a.fetchTopicMetadata({ topics: [o.topic] })).topics[0].partitions.length })),
  grow: (o) => admin((a) => a.createPartitions({ topicPartitions: [{ topic: o.topic, count: o.partitions }] })),
  configure: (o) => admin((a) => a.alterConfigs({
    validateOnly: false,
    resources: [{ type: ConfigResourceTypes.TOPIC, name: o.topic, configEntries: [{ name: o.name, value: o.value }] }],
  })),
  config: (o) => admin(async (a) => {
    const found = await a.describeConfigs({ includeSynonyms: false, resources: [{ type: ConfigResourceTypes.TOPIC, name: o.topic, configNames: [o.name] }] });
    return { text: found.resources[0].configEntries[0].configValue };
  }),
  groups: () => admin(async (a) => ({ names: (await a.listGroups()).groups.map((g) => g.groupId) })),
  group: (o) => admin(async (a) => {
    const found = (await a.describeGroups([o.group])).groups[0];
    return { text: found.state, number: found.members.length };
  }),
  delete: (o) => admin((a) => a.deleteTopics({ topics: [o.topic] })),
};

async function serve() {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    let reply;
    try {
      const answer = await operations[order.do](order);
      reply = typeof answer === "object" && answer !== null ? answer : {};
    } catch (e) {
      console.error(e);
      reply = e instanceof Absent ? { absent: e.message } : { error: `${e.name}: ${e.message}` };
    }
    console.log(JSON.stringify(reply));
  }
}

// Tells of commits that are the client's mistake, "astray PARTITION OFFSET": for a partition that is not this member's, or below what it has
// committed in the same generation. When a leader moves, kafkajs joins again while it still works on what it has fetched (recoverFromFetch in its
// consumerGroup.js), and then commits that in the new generation, in which the partition may be another member's.
function reportAstray(consumer) {
  let owned = [];
  let generation = -1;
  let last = {};
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    owned = payload.memberAssignment[topic] ?? [];
  });
  consumer.on(consumer.events.COMMIT_OFFSETS, ({ payload }) => {
    if (payload.groupGenerationId !== generation) {
      generation = payload.groupGenerationId;
      last = {};
    }
    for (const { partition, offset } of payload.topics.flatMap((t) => t.partitions)) {
      if (!owned.includes(Number(partition)) || (partition in last && BigInt(offset) < BigInt(last[partition]))) {
        console.log(`astray ${partition} ${offset}`);
      }
      last[partition] = offset;
    }
  });
}

async function member() {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, rebalanceTimeout: 10000, heartbeatInterval: 500, maxWaitTimeInMs: 200 });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    const partitions = payload.memberAssignment[topic] ?? [];
    console.log(["has", ...partitions.map((p) => `${topic}-${p}`)].join(" "));
  });
  reportAstray(consumer);
  process.on("SIGTERM", async () => {
    await consumer.disconnect();
    process.exit(0);
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommitInterval: 300,
    eachMessage: async ({ partition, message }) => console.log(`read ${partition} ${message.offset}`),
  });
}

(mode === "member" ? member() : serve()).catch((e) => {
  console.error(e);
  process.exit(1);
});
