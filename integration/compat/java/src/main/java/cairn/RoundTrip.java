package cairn;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Writes values with the stock producer, its defaults as they are (idempotent, acks=all), and reads them back by partition.
 * Arguments: BOOTSTRAP TOPIC CODEC text FILE, or BOOTSTRAP TOPIC CODEC binary SEED. Exit code 1 when something differs.
 */
public final class RoundTrip {
    private RoundTrip() {}

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], topic = args[1], codec = args[2];
        List<byte[]> values = args[3].equals("text") ? lines(Path.of(args[4])) : binary(Long.parseLong(args[4]));
        produce(bootstrap, topic, codec, values);
        compare(values, consume(bootstrap, topic, values.size()));
        System.out.println(values.size() + " records came back");
    }

    /** The lines of a file as bytes, whatever they are, without their line ends. */
    private static List<byte[]> lines(Path file) throws Exception {
        byte[] text = Files.readAllBytes(file);
        List<byte[]> all = new ArrayList<>();
        int start = 0;
        for (int i = 0; i < text.length; i++) {
            if (text[i] == '\n') {
                all.add(Arrays.copyOfRange(text, start, i));
                start = i + 1;
            }
        }
        return all;
    }

    /** Records from nothing to 900,000 bytes, half of them random, half compressible. */
    private static List<byte[]> binary(long seed) {
        System.out.println("seed " + seed);
        Random random = new Random(seed);
        List<Integer> sizes = new ArrayList<>(List.of(0, 1, 100, 1024, 65535, 65536, 500_000, 900_000));
        for (int i = 0; i < 30; i++) {
            sizes.add(random.nextInt(200_000));
        }
        List<byte[]> all = new ArrayList<>();
        for (int i = 0; i < sizes.size(); i++) {
            byte[] value = new byte[sizes.get(i)];
            if (i % 2 == 0) {
                random.nextBytes(value);
            } else {
                Arrays.fill(value, (byte) i);
            }
            all.add(value);
        }
        return all;
    }

    private static void produce(String bootstrap, String topic, String codec, List<byte[]> values) throws Exception {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "compression.type", codec);
        List<Future<RecordMetadata>> answers = new ArrayList<>();
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (byte[] value : values) {
                answers.add(producer.send(new ProducerRecord<>(topic, 0, null, value)));
            }
            producer.flush();
        }
        for (int i = 0; i < answers.size(); i++) {
            long offset = answers.get(i).get().offset();
            if (offset != i) {
                throw new IllegalStateException("record " + i + " was given offset " + offset);
            }
        }
    }

    private static List<byte[]> consume(String bootstrap, String topic, int count) {
        Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "auto.offset.reset", "earliest");
        List<byte[]> got = new ArrayList<>();
        TopicPartition partition = new TopicPartition(topic, 0);
        long deadline = System.nanoTime() + Duration.ofSeconds(60).toNanos();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            while (got.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    got.add(record.value());
                }
            }
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            if (end != count) {
                throw new IllegalStateException("end offset " + end + ", not " + count);
            }
        }
        return got;
    }

    private static void compare(List<byte[]> want, List<byte[]> got) {
        if (want.size() != got.size()) {
            throw new IllegalStateException(got.size() + " records came back, not " + want.size());
        }
        for (int i = 0; i < want.size(); i++) {
            if (!Arrays.equals(want.get(i), got.get(i))) {
                throw new IllegalStateException("record " + i + " differs");
            }
        }
    }
}
