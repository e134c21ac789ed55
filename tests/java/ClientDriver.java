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
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Kafka's own Java client at the tests' command. Each command is a JSON object whose "op" names a method here. */
final class ClientDriver {
    private final Map<String, GroupMember> members = new HashMap<>();
    private final TransactionalProducers producers = new TransactionalProducers();
    private final ShareMembers shareMembers = new ShareMembers();

    private ClientDriver() {}

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(new ClientDriver()::handle);
    }

    private JsonNode handle(JsonNode command) throws Exception {
        String op = command.get("op").asText();
        return switch (op) {
            case "produce" -> produce(command);
            case "consume" -> consume(command);
            case "join" -> join(command);
            case "take" -> members.get(command.get("member").asText()).take();
            case "enforce_rebalance" -> enforceRebalance(command);
            case "leave" -> leave(command);
            case "read_to_end" -> readToEnd(command);
            case "share" -> shareMembers.handle(command, config(command));
            case "transaction" -> producers.handle(command, config(command));
            default -> throw new IllegalArgumentException("no operation " + op);
        };
    }

    private static Properties config(JsonNode command) {
        Properties config = new Properties();
        command.path("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return config;
    }

    private static JsonNode produce(JsonNode command) throws Exception {
        String topic = command.get("topic").asText();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ArrayNode places = answer.putArray("sent");
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config(command))) {
            for (JsonNode record : command.get("records")) {
                sent.add(producer.send(Records.fromJson(topic, record)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : sent) {
                RecordMetadata place = future.get();
                places.addArray().add(place.partition()).add(place.offset());
            }
        }
        return answer;
    }

    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, JsonNode command) {
        return consumer.partitionsFor(command.get("topic").asText()).stream()
            .map(info -> new TopicPartition(info.topic(), info.partition()))
            .collect(Collectors.toList());
    }

    /** Reads all partitions of a topic from the beginning until "count" records are there or time is up. */
    private static JsonNode consume(JsonNode command) {
        int count = command.get("count").asInt();
        long deadline = System.nanoTime() + command.get("timeout_ms").asLong() * 1_000_000;
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config(command))) {
            List<TopicPartition> partitions = partitions(consumer, command);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            while (records.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    records.add(Records.toJson(record));
                }
            }
        }
        return answer;
    }

    /** Reads all partitions from the beginning to the end that there is now for the isolation level of the config. */
    private static JsonNode readToEnd(JsonNode command) {
        ObjectNode answer = LineServer.JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config(command))) {
            List<TopicPartition> partitions = partitions(consumer, command);
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(partition -> consumer.position(partition) < ends.get(partition))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    records.add(Records.toJson(record));
                }
            }
        }
        return answer;
    }

    private JsonNode join(JsonNode command) {
        List<String> topics = new ArrayList<>();
        command.get("topics").forEach(topic -> topics.add(topic.asText()));
        members.put(command.get("member").asText(), new GroupMember(config(command), topics));
        return LineServer.JSON.createObjectNode();
    }

    private JsonNode enforceRebalance(JsonNode command) {
        members.get(command.get("member").asText()).enforceRebalance(command.get("reason").asText());
        return LineServer.JSON.createObjectNode();
    }

    private JsonNode leave(JsonNode command) throws Exception {
        GroupMember member = members.remove(command.get("member").asText());
        member.leave();
        return member.take();
    }
}
