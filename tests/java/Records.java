import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.header.Header;

/** Records as JSON: bytes in base 64, null where Kafka has null, headers as [name, value] pairs. */
final class Records {
    private Records() {}

    static ProducerRecord<byte[], byte[]> fromJson(String topic, JsonNode json) throws IOException {
        Integer partition = json.hasNonNull("partition") ? json.get("partition").asInt() : null;
        Long timestamp = json.hasNonNull("timestamp") ? json.get("timestamp").asLong() : null;
        ProducerRecord<byte[], byte[]> record =
            new ProducerRecord<>(topic, partition, timestamp, bytes(json.get("key")), bytes(json.get("value")));
        for (JsonNode header : json.withArray("headers")) {
            record.headers().add(header.get(0).asText(), bytes(header.get(1)));
        }
        return record;
    }

    static ObjectNode toJson(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode json = LineServer.JSON.createObjectNode();
        json.put("partition", record.partition());
        json.put("offset", record.offset());
        json.put("timestamp", record.timestamp());
        json.put("key", record.key());
        json.put("value", record.value());
        ArrayNode headers = json.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(header.value());
        }
        return json;
    }

    private static byte[] bytes(JsonNode node) throws IOException {
        return node == null || node.isNull() ? null : node.binaryValue();
    }
}
