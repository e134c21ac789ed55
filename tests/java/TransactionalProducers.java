import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Transactional producers by name, each told its transactions step by step. */
final class TransactionalProducers {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    JsonNode handle(JsonNode command, Properties config) throws Exception {
        String name = command.get("producer").asText();
        String step = command.get("step").asText();
        if (step.equals("open")) {
            KafkaProducer<byte[], byte[]> opened = new KafkaProducer<>(config);
            producers.put(name, opened);
            opened.initTransactions();
            return LineServer.JSON.createObjectNode();
        }
        if (step.equals("fence")) {
            // By an operator, who has no producer.
            try (Admin admin = Admin.create(config)) {
                admin.fenceProducers(List.of(name)).all().get();
            }
            return LineServer.JSON.createObjectNode();
        }
        KafkaProducer<byte[], byte[]> producer = producers.get(name);
        switch (step) {
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                return send(producer, command);
            }
            case "send_offsets" -> producer.sendOffsetsToTransaction(offsets(command), group(command.get("group")));
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

    /** By the constructor that tests have: an application takes what its consumer says. */
    @SuppressWarnings("removal")
    private static ConsumerGroupMetadata group(JsonNode group) {
        String id = group.get("id").asText();
        return new ConsumerGroupMetadata(
            id, group.get("generation").asInt(), group.get("member").asText(), Optional.empty());
    }
}
