import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Properties;
import java.util.function.Function;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;

/** One instance of a Kafka Streams application, at the tests' command. */
final class StreamsInstance {
    private final Function<JsonNode, Topology> topology;
    private KafkaStreams streams;

    /** The topology may be made of what else is in the command. */
    StreamsInstance(Function<JsonNode, Topology> topology) {
        this.topology = topology;
    }

    JsonNode handle(JsonNode command) throws IOException {
        String op = command.get("op").asText();
        return switch (op) {
            case "start" -> start(command);
            case "state" -> answer(streams.state());
            case "close" -> close();
            default -> throw new IllegalArgumentException("no operation " + op);
        };
    }

    private JsonNode start(JsonNode command) throws IOException {
        Properties config = new Properties();
        command.get("config").properties().forEach(entry -> config.put(entry.getKey(), entry.getValue().asText()));
        Path directory = Files.createTempDirectory("streams");
        directory.toFile().deleteOnExit();
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        streams = new KafkaStreams(topology.apply(command), config);
        streams.start();
        return answer(streams.state());
    }

    /** Processes and commits what it has read. Streams leaves the group only when told to, so it is not told. */
    private JsonNode close() {
        streams.close(Duration.ofSeconds(30));
        return answer(streams.state());
    }

    private static ObjectNode answer(KafkaStreams.State state) {
        return LineServer.JSON.createObjectNode().put("state", state.name());
    }
}
