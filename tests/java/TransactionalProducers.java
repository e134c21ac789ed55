import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Transactional producers by name, each told its transactions step by step. */
final class TransactionalProducers {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    @SuppressWarnings("removal")
    JsonNode handle(JsonNode command, Properties config) throws Exception {
        String name = command.get("producer").asText();
        String step = command.get("step").asText();
        if (step.equals("open")) {
            KafkaProducer<byte[], byte[]> opened = new KafkaProducer<>(config);
            producers.put(name, opened);
            opened.initTransactions();
            return LineServer.JSON.createObjectNode();
        }
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (step) {
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                return send(producer, command);
            }
            case "send_offsets" -> producer.sendOffsetsToTransaction(
                offsets(command), new ConsumerGroupMetadata(command.get("group").asText()));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            // An open transaction stays open.
            case "close" -> producers.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException("no step " + step);
        }
        return LineServer.JSON.createObjectNode();
    }

    /** Returns when all are acknowledged. */
    private static ObjectNode send(KafkaProducer<byte[], byte[]> producer, JsonNode command) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : command.get("records")) {
            sent.add(producer.send(Records.fromJson(command.get("topic").asText(), record)));
        }
        producer.flush();
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ArrayNode places = answer.putArray("sent");
        for (Future<RecordMetadata> future : sent) {
            places.addArray().add(future.get().partition()).add(future.get().offset());
        }
        return answer;
    }

    private static Map<TopicPartition, OffsetAndMetadata> offsets(JsonNode command) {
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (JsonNode place : command.get("offsets")) {
            TopicPartition partition = new TopicPartition(place.get(0).asText(), place.get(1).asInt());
            offsets.put(partition, new OffsetAndMetadata(place.get(2).asLong()));
        }
        return offsets;
    }
}
