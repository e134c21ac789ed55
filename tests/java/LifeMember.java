import java.io.IOException;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;

/**
 * A consumer that polls until SIGTERM, which ends it in order: {@code LifeMember topic=T revoke_ms=N NAME=VALUE...}, with
 * the consumer's properties. It says that it is ready, and begins with a line on standard input. It takes {@code revoke_ms} to give partitions up.
 */
final class LifeMember {
    public static void main(String[] arguments) throws IOException {
        Properties config = new Properties();
        for (String argument : arguments) {
            int at = argument.indexOf('=');
            config.setProperty(argument.substring(0, at), argument.substring(at + 1));
        }
        String topic = (String) config.remove("topic");
        long revokeMs = Long.parseLong((String) config.remove("revoke_ms"));
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        config.setProperty("key.deserializer", bytes);
        config.setProperty("value.deserializer", bytes);
        KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config);
        System.out.println("ready");
        System.in.read();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup();
            try {
                main.join();
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }));
        try (consumer) {
            consumer.subscribe(List.of(topic), new Slow(revokeMs));
            while (true) {
                consumer.poll(Duration.ofMillis(100));
            }
        } catch (WakeupException ended) {
            // SIGTERM: it has left by now, if it is a dynamic member.
        }
    }

    private record Slow(long revokeMs) implements ConsumerRebalanceListener {
        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {}

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty()) {
                try {
                    Thread.sleep(revokeMs);
                } catch (InterruptedException ended) {
                    Thread.currentThread().interrupt();
                }
            }
        }
    }
}
