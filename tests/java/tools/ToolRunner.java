import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's command line classes one after the other in one JVM.
 *
 * <p>{"class": "org.apache.kafka.tools.TopicCommand", "args": [...], "stdin": "..."} is answered by
 * {"exit": code, "out": "...", "err": "..."}.
 */
final class ToolRunner {
    /** Scala keeps the System.out that it met first, so the streams stay and their target changes. */
    private static final class Switch extends OutputStream {
        private OutputStream target = OutputStream.nullOutputStream();

        @Override
        public synchronized void write(int value) {
            write(new byte[] {(byte) value}, 0, 1);
        }

        @Override
        public synchronized void write(byte[] bytes, int offset, int length) {
            try {
                target.write(bytes, offset, length);
            } catch (java.io.IOException problem) {
                throw new IllegalStateException(problem);
            }
        }

        synchronized void to(OutputStream next) {
            target = next;
        }
    }

    private static final class ToolExit extends Error {
        private static final long serialVersionUID = 1L;

        ToolExit(int code) {
            super("exit " + code, null, false, false);
            if (exitCode == null) {
                exitCode = code;
            }
        }
    }

    /** The first code counts: some tools catch the exception that stands for the end of their JVM, and exit again. */
    private static Integer exitCode;

    private static final Switch OUT = new Switch();
    private static final Switch ERR = new Switch();

    private ToolRunner() {}

    public static void main(String[] arguments) throws Exception {
        Exit.setExitProcedure((code, message) -> { throw new ToolExit(code); });
        Exit.setHaltProcedure((code, message) -> { throw new ToolExit(code); });
        // The console consumer closes itself in a hook, which is meant for the end of a JVM.
        Exit.setShutdownHookAdder((name, hook) -> { });
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        LineServer.serve(ToolRunner::run);
    }

    private static JsonNode run(JsonNode command) throws Exception {
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        OUT.to(out);
        ERR.to(err);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setIn(new ByteArrayInputStream(command.path("stdin").asText().getBytes(StandardCharsets.UTF_8)));
        List<String> arguments = new ArrayList<>();
        command.get("args").forEach(argument -> arguments.add(argument.asText()));
        int code = call(command.get("class").asText(), arguments.toArray(new String[0]));
        System.out.flush();
        System.err.flush();
        ObjectNode answer = LineServer.JSON.createObjectNode();
        answer.put("exit", code);
        answer.put("out", out.toString(StandardCharsets.UTF_8));
        answer.put("err", err.toString(StandardCharsets.UTF_8));
        return answer;
    }

    private static int call(String name, String[] arguments) throws Exception {
        exitCode = null;
        try {
            Class.forName(name).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException wrapped) {
            if (exitCode == null) {
                wrapped.getCause().printStackTrace();
                return 1;
            }
        }
        return exitCode == null ? 0 : exitCode;
    }
}
