import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * Copies one topic to another, partition by partition, in transactions that carry its positions, in a thread of its own.
 *
 * <p>What Kafka's system tests call TransactionalMessageCopier: every so many transactions one is aborted and done
 * again; a producer that cannot go on is replaced by a new one of the same transactional id.
 */
final class Copier {
    private final Properties config;
    private final String input;
    private final String output;
    private final int abortEvery;
    private final Thread thread;
    private volatile boolean stopping;
    private volatile int committed;
    private volatile int aborted;
    private volatile int failed;
    private volatile int renewed;
    private volatile Throwable problem;

    Copier(Properties config, String input, String output, int abortEvery) {
        this.config = config;
        this.input = input;
        this.output = output;
        this.abortEvery = abortEvery;
        thread = new Thread(this::run, "copier");
        thread.start();
    }

    private void run() {
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(input));
            while (!stopping) {
                try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
                    producer.initTransactions();
                    rewind(consumer);
                    copy(consumer, producer);
                } catch (KafkaException fatal) {
                    problem = fatal;
                    renewed++;
                }
            }
        } catch (Throwable unexpected) {
            problem = unexpected;
            failed = -1;
        }
    }

    private void copy(KafkaConsumer<byte[], byte[]> consumer, KafkaProducer<byte[], byte[]> producer) {
        while (!stopping) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            try {
                producer.beginTransaction();
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    producer.send(new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
                }
                producer.sendOffsetsToTransaction(positions(consumer, records), consumer.groupMetadata());
                if ((committed + aborted + 1) % abortEvery == 0) {
                    producer.abortTransaction();
                    rewind(consumer);
                    aborted++;
                } else {
                    commit(producer);
                    committed++;
                }
            } catch (ProducerFencedException fenced) {
                throw fenced;
            } catch (KafkaException abortable) {
                problem = abortable;
                failed++;
                producer.abortTransaction();
                rewind(consumer);
            }
        }
    }

    /** Whether a commit that takes too long has happened is told by asking again, and by nothing else. */
    private static void commit(KafkaProducer<byte[], byte[]> producer) {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException late) {
                continue;
            }
        }
    }

    private static Map<TopicPartition, OffsetAndMetadata> positions(
            KafkaConsumer<byte[], byte[]> consumer, ConsumerRecords<byte[], byte[]> records) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        records.partitions().forEach(
            partition -> positions.put(partition, new OffsetAndMetadata(consumer.position(partition))));
        return positions;
    }

    private static void rewind(KafkaConsumer<byte[], byte[]> consumer) {
        Map<TopicPartition, OffsetAndMetadata> positions = consumer.committed(consumer.assignment());
        for (TopicPartition partition : consumer.assignment()) {
            OffsetAndMetadata position = positions.get(partition);
            if (position == null) {
                consumer.seekToBeginning(List.of(partition));
            } else {
                consumer.seek(partition, position);
            }
        }
    }

    /** Ends after the transaction that it is at. */
    void stop() throws InterruptedException {
        stopping = true;
        thread.join();
    }

    /** How many transactions have ended, and what went wrong last. */
    ObjectNode state() {
        if (failed < 0) {
            throw new IllegalStateException("the copier's thread ended", problem);
        }
        ObjectNode json = LineServer.JSON.createObjectNode();
        json.put("committed", committed).put("aborted", aborted).put("failed", failed).put("renewed", renewed);
        return json.put("problem", String.valueOf(problem));
    }
}
