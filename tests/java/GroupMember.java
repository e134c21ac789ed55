import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/** A consumer that polls in a thread of its own and commits what it has read before it gives partitions up. */
final class GroupMember implements ConsumerRebalanceListener {
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
    private final List<TopicPartition> assigned = new ArrayList<>();
    private final Thread thread;
    private volatile boolean leaving;
    private volatile String rebalanceReason;
    private volatile Throwable failure;

    GroupMember(Properties config, List<String> topics) {
        consumer = new KafkaConsumer<>(config);
        consumer.subscribe(topics, this);
        thread = new Thread(this::poll, "member");
        thread.start();
    }

    private void poll() {
        try (consumer) {
            while (!leaving) {
                if (rebalanceReason != null) {
                    consumer.enforceRebalance(rebalanceReason);
                    rebalanceReason = null;
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                    synchronized (this) {
                        records.add(record);
                    }
                }
            }
        } catch (Throwable problem) {
            failure = problem;
        }
    }

    @Override
    public synchronized void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        assigned.addAll(partitions);
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        consumer.commitSync();
        synchronized (this) {
            assigned.removeAll(partitions);
        }
    }

    /** The group has given them to somebody else, so there is nothing to commit any more. */
    @Override
    public synchronized void onPartitionsLost(Collection<TopicPartition> partitions) {
        assigned.removeAll(partitions);
    }

    /** Has the thread call enforceRebalance with the next poll. */
    void enforceRebalance(String reason) {
        rebalanceReason = reason;
    }

    /** Commits, leaves the group and ends the thread. */
    void leave() throws InterruptedException {
        leaving = true;
        thread.join();
    }

    /** What it holds now, and the records read since the last call. */
    synchronized ObjectNode take() throws Exception {
        if (failure != null) {
            throw new IllegalStateException("the member's thread ended", failure);
        }
        ObjectNode json = LineServer.JSON.createObjectNode();
        ArrayNode partitions = json.putArray("assigned");
        assigned.forEach(partition -> partitions.addArray().add(partition.topic()).add(partition.partition()));
        ArrayNode taken = json.putArray("records");
        records.forEach(record -> taken.add(Records.toJson(record)));
        records.clear();
        return json;
    }
}
