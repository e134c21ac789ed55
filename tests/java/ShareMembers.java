import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;

/** Share consumers, each under the name of its "member"; they poll and acknowledge at command only. */
final class ShareMembers {
    private final Map<String, KafkaShareConsumer<byte[], byte[]>> consumers = new HashMap<>();
    /** Delivered records by "member-partition-offset". */
    private final Map<String, ConsumerRecord<byte[], byte[]>> polled = new HashMap<>();

    JsonNode handle(JsonNode command, Properties config) {
        String name = command.get("member").asText();
        switch (command.get("step").asText()) {
            case "open" -> {
                List<String> topics = new ArrayList<>();
                command.get("topics").forEach(topic -> topics.add(topic.asText()));
                KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config);
                consumers.put(name, consumer);
                consumer.subscribe(topics);
            }
            case "poll" -> {
                return poll(name, command.get("timeout_ms").asLong());
            }
            case "acknowledge" -> command.get("records").forEach(place -> consumers.get(name).acknowledge(
                polled.get(name + "-" + place.get(0).asInt() + "-" + place.get(1).asLong()),
                AcknowledgeType.valueOf(place.get(2).asText().toUpperCase(Locale.ROOT))));
            case "commit" -> {
                return commit(consumers.get(name));
            }
            case "close" -> consumers.remove(name).close();
            default -> throw new IllegalArgumentException("no step " + command.get("step"));
        }
        return LineServer.JSON.createObjectNode();
    }

    /** Polls once; each record with its delivery count. */
    private JsonNode poll(String name, long timeoutMs) {
        KafkaShareConsumer<byte[], byte[]> consumer = consumers.get(name);
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(timeoutMs))) {
            ObjectNode json = (ObjectNode) Records.toJson(record);
            json.put("delivery_count", record.deliveryCount().orElse((short) 0));
            records.add(json);
            polled.put(name + "-" + record.partition() + "-" + record.offset(), record);
        }
        answer.put("lock_timeout_ms", consumer.acquisitionLockTimeoutMs().orElse(-1));
        return answer;
    }

    /** Sends the acknowledgements; the class name of the error for each partition, "" for none. */
    private static JsonNode commit(KafkaShareConsumer<byte[], byte[]> consumer) {
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ObjectNode errors = answer.putObject("errors");
        Map<TopicIdPartition, Optional<KafkaException>> outcome = consumer.commitSync();
        outcome.forEach((partition, error) -> errors.put(
            partition.topic() + "-" + partition.partition(), error.map(it -> it.getClass().getSimpleName()).orElse("")));
        return answer;
    }
}
