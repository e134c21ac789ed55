import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.clients.consumer.KafkaConsumer;

/**
 * A consumer that does what lines on standard input say: {@code subscribe TOPIC...}, {@code work SECONDS} (without a poll),
 * {@code rejoin}, {@code close}. Its arguments are the topics, separated by commas, and the consumer's properties.
 */
final class WatchedMember {
    public static void main(String[] arguments) throws InterruptedException {
        Properties config = new Properties();
        for (String argument : List.of(arguments).subList(1, arguments.length)) {
            int at = argument.indexOf('=');
            config.setProperty(argument.substring(0, at), argument.substring(at + 1));
        }
        String bytes = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        config.setProperty("key.deserializer", bytes);
        config.setProperty("value.deserializer", bytes);
        Queue<String> orders = new ConcurrentLinkedQueue<>();
        Thread reader = new Thread(() -> read(orders));
        reader.setDaemon(true);
        reader.start();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.subscribe(List.of(arguments[0].split(",")));
            while (true) {
                String order = orders.poll();
                if (order == null) {
                    consumer.poll(Duration.ofMillis(200));
                    continue;
                }
                List<String> words = List.of(order.split(" "));
                switch (words.get(0)) {
                    case "subscribe" -> consumer.subscribe(words.subList(1, words.size()));
                    case "work" -> Thread.sleep((long) (1000 * Double.parseDouble(words.get(1))));
                    case "rejoin" -> consumer.enforceRebalance();
                    default -> {
                        return;
                    }
                }
            }
        }
    }

    private static void read(Queue<String> orders) {
        try (BufferedReader input = new BufferedReader(new InputStreamReader(System.in))) {
            input.lines().forEach(orders::add);
        } catch (IOException ended) {
            // As at the end of the input.
        }
        Runtime.getRuntime().halt(1);
    }
}
