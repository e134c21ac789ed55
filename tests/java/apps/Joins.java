import com.fasterxml.jackson.databind.JsonNode;
import java.time.Duration;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowBytesStoreSupplier;

/**
 * An application that joins the topics left and right, as streams into pairs and as tables into rows.
 *
 * <p>A key that is once in each of them is once in each of the results, whichever comes first.
 */
final class Joins {
    private static final Serde<String> TEXT = Serdes.String();
    private static final Duration HOUR = Duration.ofHours(1);

    private Joins() {}

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(new StreamsInstance(command -> topology())::handle);
    }

    private static Topology topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> left = builder.stream("left", Consumed.with(TEXT, TEXT));
        KStream<String, String> right = builder.stream("right", Consumed.with(TEXT, TEXT));
        left.join(
                right,
                Joins::both,
                JoinWindows.ofTimeDifferenceAndGrace(HOUR, HOUR),
                StreamJoined.with(TEXT, TEXT, TEXT)
                    .withThisStoreSupplier(window("left-window"))
                    .withOtherStoreSupplier(window("right-window")))
            .to("pairs", Produced.with(TEXT, TEXT));
        table(left, "left-table").join(table(right, "right-table"), Joins::both, stored("both"))
            .toStream()
            .to("rows", Produced.with(TEXT, TEXT));
        return builder.build();
    }

    private static WindowBytesStoreSupplier window(String name) {
        return Stores.inMemoryWindowStore(name, HOUR.multipliedBy(3), HOUR.multipliedBy(2), true);
    }

    private static KTable<String, String> table(KStream<String, String> stream, String name) {
        return stream.toTable(stored(name));
    }

    private static Materialized<String, String, KeyValueStore<Bytes, byte[]>> stored(String name) {
        return Materialized.<String, String>as(Stores.inMemoryKeyValueStore(name)).withKeySerde(TEXT).withValueSerde(TEXT);
    }

    private static String both(String left, String right) {
        return left + " and " + right;
    }
}
