package cairn;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Carries out the orders of the compatibility run with the stock client; ../../../../../../README.md describes them. */
public final class Driver {
    private static final ObjectMapper JSON = new ObjectMapper();

    private final String bootstrap;
    private final Admin admin;

    private Driver(String bootstrap) {
        this.bootstrap = bootstrap;
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("member")) {
            GroupMember.run(args[1], args[2], args[3], Arrays.copyOfRange(args, 4, args.length));
            return;
        }
        Driver driver = new Driver(args[1]);
        var orders = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            ObjectNode reply = JSON.createObjectNode();
            try {
                driver.carryOut(JSON.readTree(line), reply);
            } catch (Exception e) {
                Throwable cause = e instanceof ExecutionException ? e.getCause() : e;
                e.printStackTrace();
                reply.put("error", cause.toString());
            }
            System.out.println(JSON.writeValueAsString(reply));
        }
        System.exit(0);
    }

    private void carryOut(JsonNode order, ObjectNode reply) throws Exception {
        String topic = order.path("topic").asText();
        switch (order.get("do").asText()) {
            case "create" -> admin.createTopics(List.of(new NewTopic(topic, order.get("partitions").asInt(), (short) 3))).all().get();
            case "produce" -> produce(order, reply);
            case "transact" -> transact(order);
            case "fetch" -> fetch(order, reply);
            case "at" -> at(order, reply);
            case "member" -> { }
            case "topics" -> admin.listTopics().names().get().forEach(reply.putArray("names")::add);
            case "describe" -> reply.put("number", admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
            case "grow" -> admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(order.get("partitions").asInt()))).all().get();
            case "configure" -> admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.TOPIC, topic), List.of(new AlterConfigOp(
                new ConfigEntry(order.get("name").asText(), order.get("value").asText()), AlterConfigOp.OpType.SET)))).all().get();
            case "config" -> {
                var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
                reply.put("text", admin.describeConfigs(List.of(resource)).all().get().get(resource).get(order.get("name").asText()).value());
            }
            case "groups" -> groups(reply);
            case "group" -> group(order.get("group").asText(), reply);
            case "delete" -> admin.deleteTopics(List.of(topic)).all().get();
            default -> throw new IllegalArgumentException("unknown order " + order);
        }
    }

    @SuppressWarnings("deprecation") // 3.9 has no other call
    private void groups(ObjectNode reply) throws Exception {
        ArrayNode names = reply.putArray("names");
        admin.listConsumerGroups().all().get().forEach(g -> names.add(g.groupId()));
    }

    @SuppressWarnings("deprecation") // 3.9 has no other call
    private void group(String name, ObjectNode reply) throws Exception {
        var group = admin.describeConsumerGroups(List.of(name)).all().get().get(name);
        reply.put("text", group.state().toString()).put("number", group.members().size());
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private static List<ProducerRecord<byte[], byte[]>> records(JsonNode order) throws Exception {
        List<ProducerRecord<byte[], byte[]>> all = new ArrayList<>();
        for (JsonNode r : order.get("records")) {
            var record = new ProducerRecord<>(order.get("topic").asText(), order.get("partition").asInt(), r.get("key").binaryValue(), r.get("value").binaryValue());
            for (JsonNode h : r.get("headers")) {
                record.headers().add(h.get("key").asText(), h.get("value").binaryValue());
            }
            all.add(record);
        }
        return all;
    }

    private void produce(JsonNode order, ObjectNode reply) throws Exception {
        Map<String, Object> config = Map.of("compression.type", order.path("codec").asText("none"), "acks", order.get("acks").asText(),
            "enable.idempotence", order.path("idempotent").asBoolean());
        ArrayNode offsets = reply.putArray("offsets");
        try (var producer = producer(config)) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (var record : records(order)) {
                answers.add(producer.send(record));
            }
            producer.flush();
            for (var answer : answers) {
                offsets.add(answer.get().offset());
            }
        }
    }

    private void transact(JsonNode order) throws Exception {
        try (var producer = producer(Map.of("transactional.id", order.get("id").asText()))) {
            producer.initTransactions();
            producer.beginTransaction();
            for (var record : records(order)) {
                producer.send(record);
            }
            if (order.has("group")) {
                producer.sendOffsetsToTransaction(Map.of(partition(order), new OffsetAndMetadata(order.get("offset").asLong())),
                    new ConsumerGroupMetadata(order.get("group").asText()));
            }
            producer.flush();
            if (order.path("abort").asBoolean()) {
                producer.abortTransaction();
            } else {
                producer.commitTransaction();
            }
        }
    }

    private static TopicPartition partition(JsonNode order) {
        return new TopicPartition(order.get("topic").asText(), order.get("partition").asInt());
    }

    private KafkaConsumer<byte[], byte[]> consumer(boolean committed) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "isolation.level", committed ? "read_committed" : "read_uncommitted");
        return new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void fetch(JsonNode order, ObjectNode reply) {
        ArrayNode all = reply.putArray("records");
        int count = order.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        try (var consumer = consumer(order.path("committed").asBoolean())) {
            consumer.assign(List.of(partition(order)));
            consumer.seek(partition(order), order.get("offset").asLong());
            while (all.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    ObjectNode one = all.addObject().put("key", r.key()).put("value", r.value()).put("offset", r.offset());
                    ArrayNode headers = one.putArray("headers");
                    for (Header h : r.headers()) {
                        headers.addObject().put("key", h.key()).put("value", h.value());
                    }
                }
            }
        }
    }

    private void at(JsonNode order, ObjectNode reply) {
        try (var consumer = consumer(false)) {
            reply.put("offset", consumer.offsetsForTimes(Map.of(partition(order), order.get("time").asLong())).get(partition(order)).offset());
        }
    }
}
