package cairn;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Retries and time limits of stock producers. Arguments: --bootstrap-server BROKERS TOPIC, then runs NAME:COUNT:HOW[:PROPERTY=VALUE...]. All runs go on
 * at once, each with a producer of its own, which sends COUNT records to partition 0: HOW is await, for one after the other, or batch. Prints for each
 * record "NAME MILLISECONDS ERROR MESSAGE", the time since the run's begin, in the order of records; for a producer that cannot be made "NAME refused
 * MESSAGE". A run with COUNT 0 prints "producer|consumer NAME=DEFAULT" for each default instead.
 */
public final class Limits {
    private Limits() {}

    public static void main(String[] args) throws Exception {
        List<Thread> threads = new ArrayList<>();
        for (int i = 3; i < args.length; i++) {
            String[] words = args[i].split(":");
            Thread thread = new Thread(() -> run(args[1], args[2], words));
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private static void run(String brokers, String topic, String[] words) {
        if (words[1].equals("0")) {
            defaults();
            return;
        }
        Map<String, Object> properties = new HashMap<>(Map.of("bootstrap.servers", brokers));
        for (int i = 3; i < words.length; i++) {
            String[] pair = words[i].split("=");
            properties.put(pair[0], pair[1]);
        }
        long begun = System.nanoTime();
        try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
            producer.partitionsFor(topic);
            begun = System.nanoTime();
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < Integer.parseInt(words[1]); i++) {
                sent.add(producer.send(new ProducerRecord<>(topic, 0, null, "value")));
                if (words[2].equals("await")) {
                    await(words[0], begun, sent.remove(0));
                }
            }
            for (var future : sent) {
                await(words[0], begun, future);
            }
        } catch (ConfigException e) {
            print(words[0] + " refused " + e.getMessage());
        } catch (Exception e) {
            Throwable cause = e.getCause() == null ? e : e.getCause();
            print(words[0] + " refused " + cause.getMessage());
        }
    }

    private static void await(String name, long begun, Future<RecordMetadata> future) throws Exception {
        String outcome = "ok";
        try {
            future.get();
        } catch (ExecutionException e) {
            outcome = e.getCause().getClass().getSimpleName() + " " + e.getCause().getMessage();
        }
        print(name + " " + (System.nanoTime() - begun) / 1_000_000 + " " + outcome);
    }

    private static synchronized void print(String line) {
        System.out.println(line.replace('\n', ' '));
    }

    private static void defaults() {
        Map<String, Object> make = Map.of("bootstrap.servers", "localhost:1", "group.id", "any", "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class,
            "key.deserializer", StringDeserializer.class, "value.deserializer", StringDeserializer.class);
        new TreeMap<>(new ProducerConfig(make).values()).forEach((name, value) -> print("producer " + name + "=" + value));
        new TreeMap<>(new ConsumerConfig(make).values()).forEach((name, value) -> print("consumer " + name + "=" + value));
    }
}
