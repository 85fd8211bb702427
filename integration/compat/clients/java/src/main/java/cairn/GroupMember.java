package cairn;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A member of a classic group until SIGTERM, when it unsubscribes. Its timeouts are short, or with "defaults PROTOCOL" those of the client. */
final class GroupMember {
    private GroupMember() {}

    /** Prints "has" with its partitions when they change, and "read PARTITION OFFSET" for each record. */
    static void run(String bootstrap, String group, String topic, String[] defaults) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group, "auto.offset.reset", "earliest"));
        if (defaults.length == 0) {
            config.putAll(Map.of("auto.commit.interval.ms", "300", "session.timeout.ms", "6000", "heartbeat.interval.ms", "500"));
        } else {
            config.put("group.protocol", defaults[1]);
        }
        var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException e) {
                // the process ends all the same
            }
        }));
        consumer.subscribe(List.of(topic));
        String before = "";
        try {
            while (true) {
                var records = consumer.poll(Duration.ofMillis(100));
                String has = consumer.assignment().stream().map(TopicPartition::toString).sorted().collect(Collectors.joining(" "));
                if (!has.equals(before)) {
                    System.out.println("has " + has);
                    before = has;
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    System.out.println("read " + record.partition() + " " + record.offset());
                }
            }
        } catch (WakeupException e) {
            consumer.unsubscribe();
            consumer.close();
        }
    }
}
