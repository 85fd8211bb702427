package cairn;

import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A member of a group until SIGTERM, when it unsubscribes. Arguments: BOOTSTRAP GROUP TOPIC PROTOCOL, where a TOPIC that begins with ^ is a regular
 * expression and PROTOCOL is classic or consumer. Prints "has" with its partitions when they change, and "read PARTITION OFFSET" for each record.
 */
public final class Member {
    private Member() {}

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", args[0], "group.id", args[1], "group.protocol", args[3],
            "auto.offset.reset", "earliest", "auto.commit.interval.ms", "300"));
        if (args[3].equals("classic")) {
            config.putAll(Map.of("session.timeout.ms", "6000", "heartbeat.interval.ms", "500",
                "partition.assignment.strategy", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"));
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
        var listener = new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {}
        };
        if (args[2].startsWith("^")) {
            consumer.subscribe(new SubscriptionPattern(args[2].substring(1)), listener);
        } else {
            consumer.subscribe(List.of(args[2]), listener);
        }
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
