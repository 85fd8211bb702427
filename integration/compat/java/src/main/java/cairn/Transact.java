package cairn;

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers that do what they are told. Arguments: --bootstrap-server BROKERS TOPIC, then steps NAME:STEP[:WORD...]. A producer
 * comes to be with its first step; its transactional id is its NAME up to a dot. Steps are init, begin, send:VALUE (to partition 0, and waits for
 * the answer), offsets:GROUP:OFFSET (of TOPIC-0), commit and abort. Prints each step with "ok" or the class of its error. In the end the producers
 * are left as they are, with their transactions open.
 */
public final class Transact {
    private Transact() {}

    public static void main(String[] args) {
        Map<String, KafkaProducer<String, String>> producers = new HashMap<>();
        for (int i = 3; i < args.length; i++) {
            String[] words = args[i].split(":");
            var producer = producers.computeIfAbsent(words[0], name -> new KafkaProducer<>(Map.of("bootstrap.servers", args[1],
                "transactional.id", name.split("\\.")[0], "transaction.timeout.ms", "60000"), new StringSerializer(), new StringSerializer()));
            String outcome = "ok";
            try {
                step(producer, args[2], words);
            } catch (ExecutionException e) {
                outcome = e.getCause().getClass().getSimpleName();
            } catch (Exception e) {
                outcome = e.getClass().getSimpleName();
            }
            System.out.println(args[i] + " " + outcome);
        }
        producers.values().forEach(producer -> producer.close(Duration.ZERO));
    }

    private static void step(KafkaProducer<String, String> producer, String topic, String[] words) throws Exception {
        switch (words[1]) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> producer.send(new ProducerRecord<>(topic, 0, null, words[2])).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(topic, 0), new OffsetAndMetadata(Long.parseLong(words[3]))), new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> throw new IllegalArgumentException(words[1]);
        }
    }
}
