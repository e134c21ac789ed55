// A test of a consumer against `kohort testing serve`, in Java, without a test framework:
//
//   kohort testing serve --control 8475 &
//   mvn dependency:copy -Dartifact=org.apache.kafka:kafka-clients:4.4.0 -DoutputDirectory=jars
//   mvn dependency:copy -Dartifact=org.slf4j:slf4j-api:1.7.36 -DoutputDirectory=jars
//   java -cp 'jars/*' BillingTest.java
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class BillingTest {
    private static final String CONTROL =
            System.getenv().getOrDefault("CONTROL", "http://127.0.0.1:8475");
    private static final HttpClient HTTP = HttpClient.newHttpClient();

    /** The answer of one call, as the JSON that it is. */
    private static String call(String path, String json) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(CONTROL + path))
                .header("Content-Type", "application/json")
                .POST(HttpRequest.BodyPublishers.ofString(json))
                .build();
        HttpResponse<String> response = HTTP.send(request, HttpResponse.BodyHandlers.ofString());
        if (response.statusCode() != 200) {
            throw new AssertionError(path + ": " + response.body());
        }
        return response.body();
    }

    private static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": \"?([^\",}]+)").matcher(json);
        if (!found.find()) {
            throw new AssertionError("no " + name + " in " + json);
        }
        return found.group(1);
    }

    public static void main(String[] arguments) throws Exception {
        String made = call("/brokers", "{}");
        String broker = "/brokers/" + field(made, "id");
        String group = broker + "/groups/billing";
        call(broker + "/create_topic", "{\"name\": \"orders\", \"partitions\": 2}");
        call(broker + "/produce", "{\"topic\": \"orders\", \"value\": \"first\"}");

        Map<String, Object> settings = Map.of(
                "bootstrap.servers", field(made, "bootstrap_servers"),
                "group.id", "billing",
                "client.id", "worker-1",
                "auto.offset.reset", "earliest",
                "auto.commit.interval.ms", 100,
                "heartbeat.interval.ms", 100);
        List<String> seen = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(
                settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("orders"));
            read(consumer, seen, "first");
            call(group + "/wait", "{\"state\": \"Stable\", \"members\": 1}");
            call(group + "/expire", "{\"client_id\": \"worker-1\"}");
            call(broker + "/produce", "{\"topic\": \"orders\", \"value\": \"second\"}");
            read(consumer, seen, "second");
            String why = call(group + "/why", "{}");
            if (!why.contains("missed its session timeout")) {
                throw new AssertionError(why);
            }
        }
        call(broker + "/close", "{}");
        System.out.println("passed");
    }

    private static void read(KafkaConsumer<String, String> consumer, List<String> seen, String last) {
        while (!seen.contains(last)) {
            consumer.poll(Duration.ofMillis(100)).forEach(record -> seen.add(record.value()));
        }
    }
}
