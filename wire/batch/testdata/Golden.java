// Makes the java-*.bin files: sends the golden records with Kafka's own producer to the capturing broker that
// `go test ./wire/batch -run TestUpdateGoldenJava -java-port 19092` starts.
// Run: java -cp 'kafka-clients-4.3.1.jar:lz4...:snappy...:zstd...:slf4j-api...' Golden.java 127.0.0.1:19092 gzip
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Golden {
    public static void main(String[] args) {
        Properties p = new Properties();
        p.put("bootstrap.servers", args[0]);
        p.put("compression.type", args[1]);
        p.put("client.id", "golden");
        p.put("batch.size", 1 << 20);
        p.put("linger.ms", 60000);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(p, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (int i = 0; i < 40; i++) {
                byte[] key = i % 5 == 4 ? null : ("key-" + i).getBytes();
                byte[] value = i % 9 == 8 ? null : ("value " + i + " of the golden batch. ").repeat(1 + i * 3).getBytes();
                ProducerRecord<byte[], byte[]> r = new ProducerRecord<>("golden", 0, 1700000000000L + i * 10, key, value);
                if (i % 4 == 0) {
                    r.headers().add("n", Integer.toString(i).getBytes()).add("null", null);
                }
                producer.send(r);
            }
            producer.flush();
        }
    }
}
