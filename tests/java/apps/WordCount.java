import com.fasterxml.jackson.databind.JsonNode;
import java.util.Arrays;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * An application that counts words.
 *
 * <p>Grouping by word takes a repartition topic, counting takes a store with a changelog topic.
 */
final class WordCount {
    private WordCount() {}

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(new StreamsInstance(WordCount::topology)::handle);
    }

    private static Topology topology(JsonNode command) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(command.get("input").asText(), Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("by-word", Serdes.String(), Serdes.String()))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withKeySerde(Serdes.String()))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(command.get("output").asText(), Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }
}
