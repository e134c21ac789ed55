import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.utils.Utils;

/**
 * Kafka's generated message classes at the tests' command: {"class", "version", "bytes"} reads bytes and tells what
 * they mean, {"class", "version", "json"} makes a message from its JSON form. Both answer with the bytes that Kafka
 * writes for the message, in base 64. {"texts"} answers with the hash of each by which Kafka chooses a partition for a
 * group of that name.
 */
final class MessageCodec {
    private final Map<String, Class<?>> classes = new HashMap<>();
    private final Map<String, Method> methods = new HashMap<>();

    private MessageCodec() {}

    public static void main(String[] arguments) throws Exception {
        LineServer.serve(new MessageCodec()::handle);
    }

    private JsonNode handle(JsonNode command) throws Exception {
        if (command.has("texts")) {
            ArrayNode hashes = LineServer.JSON.createArrayNode();
            command.get("texts").forEach(text -> hashes.add(Utils.abs(text.asText().hashCode())));
            return LineServer.JSON.createObjectNode().set("hashes", hashes);
        }
        String name = command.get("class").asText();
        short version = (short) command.get("version").asInt();
        ObjectNode answer = LineServer.JSON.createObjectNode();
        Message message;
        if (command.has("json")) {
            message = (Message) converter(name, "read", 2).invoke(null, command.get("json"), version);
        } else {
            message = (Message) find(name).getDeclaredConstructor().newInstance();
            ByteBuffer bytes = ByteBuffer.wrap(command.get("bytes").binaryValue());
            message.read(new ByteBufferAccessor(bytes), version);
            answer.put("left", bytes.remaining());
            // Records appear by their size: their content is not a message's business.
            answer.set("json", (JsonNode) converter(name, "write", 3).invoke(null, message, version, false));
        }
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] bytes = new byte[written.remaining()];
        written.get(bytes);
        return answer.put("bytes", bytes);
    }

    private Class<?> find(String name) throws ClassNotFoundException {
        Class<?> found = classes.get(name);
        if (found == null) {
            found = Class.forName(name);
            classes.put(name, found);
        }
        return found;
    }

    private Method converter(String name, String method, int parameters) throws ClassNotFoundException {
        String key = name + " " + method;
        if (!methods.containsKey(key)) {
            Method found = Arrays.stream(find(name + "JsonConverter").getMethods())
                .filter(m -> m.getName().equals(method) && m.getParameterCount() == parameters)
                .findFirst().orElseThrow();
            methods.put(key, found);
        }
        return methods.get(key);
    }
}
