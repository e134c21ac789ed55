import java.io.IOException;
import java.io.StringReader;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.transaction.support.AbstractPlatformTransactionManager;
import org.springframework.transaction.support.TransactionSynchronization;
import org.springframework.transaction.support.TransactionSynchronizationManager;

/**
 * A transactional listener of Spring for Apache Kafka, which begins, commits and rolls back by itself.
 *
 * <p>How it is called: tests/interop/foreign/copying.py.
 */
final class CopyWithSpring {
    private CopyWithSpring() {}

    public static void main(String[] arguments) throws IOException {
        String group = arguments[1];
        String source = arguments[2];
        String out = arguments[3];
        int abortEvery = Integer.parseInt(arguments[4]);
        Map<String, Object> common =
            more(Map.of("bootstrap.servers", arguments[0], "reconnect.backoff.max.ms", 200), properties(arguments));

        var producers = new DefaultKafkaProducerFactory<byte[], byte[]>(
            // An open transaction of a process that was killed may have had an id that the next one does not take: Spring
            // numbers its producers.
            more(common, Map.of("linger.ms", 0, "transaction.timeout.ms", 5_000)), new ByteArraySerializer(), new ByteArraySerializer());
        producers.setTransactionIdPrefix(group);
        var consumers = new DefaultKafkaConsumerFactory<byte[], byte[]>(
            more(common, Map.of(
                "group.id", group,
                "session.timeout.ms", 3_000,
                "heartbeat.interval.ms", 300,
                "isolation.level", "read_committed",
                "auto.offset.reset", "earliest",
                "max.poll.records", 10)),
            new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var transactions = new KafkaTransactionManager<>(producers);
        // For Ended.
        transactions.setTransactionSynchronization(AbstractPlatformTransactionManager.SYNCHRONIZATION_ALWAYS);
        var properties = new ContainerProperties(source);
        properties.setKafkaAwareTransactionManager(transactions);
        properties.setMessageListener(new Copier(new KafkaTemplate<>(producers), out, abortEvery));
        new KafkaMessageListenerContainer<>(consumers, properties).start();
    }

    private static Map<String, Object> properties(String[] arguments) throws IOException {
        Properties found = new Properties();
        if (arguments.length > 5) {
            found.load(new StringReader(arguments[5]));
        }
        return found.stringPropertyNames().stream().collect(Collectors.toMap(Function.identity(), found::getProperty));
    }

    private static Map<String, Object> more(Map<String, Object> common, Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(common);
        all.putAll(more);
        return all;
    }

    /** Is called within a transaction that the container has begun. */
    private static final class Copier implements BatchMessageListener<byte[], byte[]> {
        private final KafkaTemplate<byte[], byte[]> template;
        private final String out;
        private final int abortEvery;
        private int begun;

        Copier(KafkaTemplate<byte[], byte[]> template, String out, int abortEvery) {
            this.template = template;
            this.out = out;
            this.abortEvery = abortEvery;
        }

        @Override
        public void onMessage(List<ConsumerRecord<byte[], byte[]>> records) {
            TransactionSynchronizationManager.registerSynchronization(new Ended());
            records.forEach(record -> template.send(out, record.partition(), null, record.value()));
            if (++begun % abortEvery == 0) {
                throw new IllegalStateException("to be rolled back, and read again");
            }
        }
    }

    private static final class Ended implements TransactionSynchronization {
        @Override
        public void afterCompletion(int status) {
            System.out.println(status == STATUS_COMMITTED ? "committed" : "aborted");
        }
    }
}
