import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;

/**
 * One JSON command per line of standard input, one JSON answer per line of standard output.
 *
 * <p>A JVM takes a second to start and the tests have hundreds of commands, so one JVM serves them all.
 * An exception becomes {"error": class name, "message": ..., "trace": ...}; the tests raise it again.
 */
final class LineServer {
    static final ObjectMapper JSON = new ObjectMapper();

    interface Handler {
        JsonNode handle(JsonNode command) throws Exception;
    }

    private LineServer() {}

    /** Serves until standard input ends. Whatever else prints to System.out goes to standard error. */
    static void serve(Handler handler) throws Exception {
        InputStream commands = System.in;
        PrintStream answers = System.out;
        System.setOut(System.err);
        BufferedReader reader = new BufferedReader(new InputStreamReader(commands, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            byte[] answer = JSON.writeValueAsBytes(answer(handler, line));
            answers.write(answer);
            answers.write('\n');
            answers.flush();
        }
    }

    private static JsonNode answer(Handler handler, String line) {
        try {
            return handler.handle(JSON.readTree(line));
        } catch (Throwable problem) {
            StringWriter trace = new StringWriter();
            problem.printStackTrace(new PrintWriter(trace));
            Throwable cause = problem instanceof java.util.concurrent.ExecutionException ? problem.getCause() : problem;
            ObjectNode error = JSON.createObjectNode();
            error.put("error", cause.getClass().getSimpleName());
            error.put("message", String.valueOf(cause.getMessage()));
            error.put("trace", trace.toString());
            return error;
        }
    }
}
