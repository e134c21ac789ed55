import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import javax.security.auth.x500.X500Principal;

/** Reads names of certificates (DER in base64, one a line) and writes what Java calls them, in base64. */
public final class Subjects {
    private Subjects() {}

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder out = new StringBuilder();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String name = new X500Principal(Base64.getDecoder().decode(line)).getName();
            byte[] text = name.getBytes(StandardCharsets.UTF_8);
            out.append(Base64.getEncoder().encodeToString(text)).append('\n');
        }
        System.out.print(out);
    }
}
