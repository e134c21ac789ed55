import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Reads rules and subjects (both in base64, one pair a line) and writes whom Kafka takes them for, in base64; "none" where no rule
 * matches, "bad" where the rules cannot be read.
 */
public final class MappingRules {
    private MappingRules() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] pair = line.split(" ", -1);
            out.append(name(text(pair[0]), text(pair[1]))).append('\n');
        }
        System.out.print(out);
    }

    private static String text(String encoded) {
        return new String(Base64.getDecoder().decode(encoded), StandardCharsets.UTF_8);
    }

    private static String name(String rules, String subject) {
        SslPrincipalMapper mapper;
        try {
            mapper = SslPrincipalMapper.fromRules(rules);
        } catch (RuntimeException error) {
            return "bad";
        }
        try {
            byte[] name = mapper.getName(subject).getBytes(StandardCharsets.UTF_8);
            return "=" + Base64.getEncoder().encodeToString(name);
        } catch (IOException error) {
            return "none";
        } catch (RuntimeException error) {
            return "fault " + error;
        }
    }
}
