import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * One instance of a Kafka Streams application that counts words, at the tests' command.
 *
 * <p>Grouping by word takes a repartition topic, counting takes a store with a changelog topic.
 */
final class WordCount {
    private KafkaStreams streams;

    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(new WordCount()::handle);
    }

    private JsonNode handle(JsonNode command) throws Exception {
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
        Path directory = Files.createTempDirectory("word-count");
        directory.toFile().deleteOnExit();
        config.put(StreamsConfig.STATE_DIR_CONFIG, directory.toString());
        streams = new KafkaStreams(topology(command.get("input").asText(), command.get("output").asText()), config);
        streams.start();
        return answer(streams.state());
    }

    private static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(output, Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
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
