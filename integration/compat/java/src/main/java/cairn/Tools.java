package cairn;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs the main methods of Kafka's tools one after the other in one virtual machine, since starting one for each costs more than the tools do.
 * A request on standard input is a count of strings (one byte), the strings (the class, then its arguments), and the bytes that the tool reads as its
 * standard input. The answer on standard output is the exit code, what was printed, and what was printed as errors. Numbers are four bytes,
 * the highest first; a string is its length and its UTF-8 bytes.
 */
public final class Tools {
    private Tools() {}

    /** Thrown instead of ending the virtual machine. */
    private static final class Exited extends Error {
        private static final long serialVersionUID = 1L;

        Exited(int code) {
            super("exit " + code, null, false, false);
        }
    }

    /** What the tools print. It stays the same stream, because Scala's println keeps the one that it met first. */
    private static final class Captured extends OutputStream {
        private final ByteArrayOutputStream text = new ByteArrayOutputStream();

        @Override
        public synchronized void write(int b) {
            text.write(b);
        }

        @Override
        public synchronized void write(byte[] b, int from, int count) {
            text.write(b, from, count);
        }

        synchronized int size() {
            return text.size();
        }

        /** What was printed, of at most that many bytes; the next tool begins with nothing. */
        synchronized byte[] take(int most) {
            byte[] all = Arrays.copyOf(text.toByteArray(), Math.min(text.size(), most));
            text.reset();
            return all;
        }
    }

    private static final Captured OUT = new Captured(), ERR = new Captured();
    private static final List<Runnable> HOOKS = new ArrayList<>();

    /** The code that the tool gave first, -1 before, and what it had printed as errors until then. Some tools catch what ends them. */
    private static int code = -1, errors;

    private static void exit(int wanted) {
        if (code < 0) {
            System.err.flush();
            code = wanted;
            errors = ERR.size();
        }
        throw new Exited(wanted);
    }

    public static void main(String[] args) throws Exception {
        DataInputStream requests = new DataInputStream(System.in);
        DataOutputStream answers = new DataOutputStream(System.out);
        System.setOut(new PrintStream(OUT, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(ERR, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((status, message) -> exit(status));
        Exit.setHaltProcedure((status, message) -> exit(status));
        Exit.setShutdownHookAdder((name, hook) -> HOOKS.add(hook));
        while (true) {
            int count = requests.read();
            if (count < 0) {
                return;
            }
            String[] words = new String[count];
            for (int i = 0; i < count; i++) {
                words[i] = new String(bytes(requests), StandardCharsets.UTF_8);
            }
            answer(words, bytes(requests), answers);
        }
    }

    private static byte[] bytes(DataInputStream in) throws Exception {
        byte[] all = new byte[in.readInt()];
        in.readFully(all);
        return all;
    }

    private static void answer(String[] words, byte[] input, DataOutputStream answers) throws Exception {
        System.setIn(new ByteArrayInputStream(input));
        code = -1;
        errors = Integer.MAX_VALUE;
        try {
            run(words);
            for (Runnable hook : HOOKS) {
                hook.run();
            }
        } catch (Exited e) {
            // exit has kept the code
        } catch (Throwable e) {
            e.printStackTrace();
            code = code < 0 ? 1 : code;
        }
        HOOKS.clear();
        System.out.flush();
        System.err.flush();
        answers.writeInt(Math.max(code, 0));
        for (byte[] printed : new byte[][] {OUT.take(Integer.MAX_VALUE), ERR.take(errors)}) {
            answers.writeInt(printed.length);
            answers.write(printed);
        }
        answers.flush();
    }

    private static void run(String[] words) throws Throwable {
        String[] args = new String[words.length - 1];
        System.arraycopy(words, 1, args, 0, args.length);
        try {
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, (Object) args);
        } catch (InvocationTargetException e) {
            throw e.getCause();
        }
    }
}
