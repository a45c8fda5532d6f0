import java.io.*;
import java.math.BigDecimal;
import java.net.URI;
import java.net.http.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.Function;

/**
 * A chat with an agent over AAP 3, without dependencies (Java 11). Each line of standard input is a message.
 *
 * <pre>AGENTHOST_URL=https://agents.example AGENTHOST_KEY=ah_... java Chat.java</pre>
 *
 * The answer goes to standard output, everything else to standard error. docs/clients.md lists the rules that it follows.
 */
public final class Chat {
    static final String API = setting("AGENTHOST_URL", "http://127.0.0.1:8000").replaceAll("/+$", "") + "/aap/v3";
    static final String KEY = setting("AGENTHOST_KEY", "");
    static final String AGENT = setting("AGENTHOST_AGENT", "demo");
    /** A connection without a line for this long is lost: the server sends a comment every 15 seconds. */
    static final long QUIET_SECONDS = Long.parseLong(setting("AGENTHOST_QUIET_SECONDS", "60"));
    static final long RETRY_MS = 60_000;
    static final long LONGEST_WAIT_SECONDS = 60;

    // --- your application: its tools, and the decision about the server's ---

    static final List<Object> TOOLS = List.of(Map.of(
        "name", "look_up_order",
        "description", "Finds an order by its number.",
        "parameters", Map.of("type", "object", "required", List.of("number"),
            "properties", Map.of("number", Map.of("type", "string")))));
    static final Map<String, Function<Map<String, Object>, String>> FUNCTIONS = Map.of(
        "look_up_order", input -> {
            if (!(input.get("number") instanceof String)) throw new IllegalArgumentException("number: a string is needed");
            return "Order " + input.get("number") + ": shipped yesterday";
        });

    /** The message that answers a call: the result of a tool of ours, or the permission for a tool of the server. */
    static Map<String, Object> answer(Map<String, Object> call) throws IOException {
        Object id = call.get("toolCallId");
        Function<Map<String, Object>, String> function = FUNCTIONS.get(text(call.get("name")));
        if (function == null) {
            return "y".equals(ask("Allow " + call.get("name") + " " + Json.write(call.get("input")) + "? [y/N] "))
                ? Map.of("role", "tool_permission", "toolCallId", id, "granted", true)
                : Map.of("role", "tool_permission", "toolCallId", id, "granted", false, "reason", "the user refused");
        }
        try {
            return Map.of("role", "tool", "toolCallId", id, "content", function.apply(object(call.get("input"))));
        } catch (RuntimeException error) {
            // The model sees that its call failed, and the conversation continues.
            return Map.of("role", "tool", "toolCallId", id, "content", "Tool execution failed: " + error.getMessage());
        }
    }

    public static void main(String[] arguments) throws Exception {
        try {
            chat();
        } catch (Failure failure) {
            note(failure.getMessage());
            System.exit(1);
        }
    }

    static void chat() throws Exception {
        Map<String, Object> meta = object(call("GET", "/meta", null).json());
        Map<String, Object> agent = list(meta.get("agents")).stream().map(Chat::object)
            .filter(each -> AGENT.equals(each.get("name"))).findFirst().orElse(null);
        if (agent == null) throw new Failure(API + " has no agent " + AGENT + " for this key");
        Map<String, Object> can = object(agent.get("capabilities"));
        String mode = object(can.get("stream")).containsKey("delta") ? "delta" : "message";
        // Without "trust", the server asks before each call of one of its tools.
        List<Object> enabled = new ArrayList<>();
        for (Object tool : list(agent.get("tools"))) enabled.add(Map.of("name", object(tool).get("name")));
        Object body = Map.of("agent", Map.of("name", AGENT, "tools", enabled),
            "tools", object(can.get("application")).containsKey("tools") ? TOOLS : List.of());
        String session = text(object(call("POST", "/sessions", body, "Idempotency-Key", newKey()).json()).get("sessionId"));
        note("session " + session);
        Map<Object, Map<String, Object>> open = new LinkedHashMap<>();
        while (true) {
            List<Object> messages = new ArrayList<>();
            for (Map<String, Object> call : open.values()) messages.add(answer(call));
            if (messages.isEmpty()) {
                String line = ask("> ");
                if (line == null) return;
                if (line.isBlank()) continue;
                messages.add(Map.of("role", "user", "content", line));
            }
            String reason = turn(session, mode, messages, open);
            if (!Set.of("end_turn", "tool_use").contains(reason)) note("the turn ended with " + reason);
        }
    }

    // --- the protocol ---

    /** Runs a turn. Fills {@code open} with the calls that wait for us, and returns the stop reason. */
    static String turn(String session, String mode, List<Object> messages, Map<Object, Map<String, Object>> open) throws Exception {
        String key = newKey(); // the same in each attempt, so the turn runs once
        String position = ""; // the id of the last event that was handled
        Attempts attempts = new Attempts();
        open.clear();
        while (true) {
            Answer answer = position.isEmpty()
                ? call("POST", "/sessions/" + session + "/turns", Map.of("messages", messages, "stream", mode), "Idempotency-Key", key)
                : call("GET", "/sessions/" + session + "/events/stream?stream=" + mode, null, "Last-Event-ID", position);
            if (answer.status == 204) throw new Failure("the turn is over, and its last events are gone: read the history");
            try (answer) {
                while (answer.nextEvent()) {
                    Map<String, Object> data = object(Json.read(answer.data));
                    switch (answer.event) {
                        case "text_delta": print(text(data.get("delta"))); break;
                        case "text": print(text(data.get("text"))); break;
                        case "tool_call":
                            open.put(data.get("toolCallId"), data);
                            note("the agent calls " + data.get("name") + " " + Json.write(data.get("input")));
                            break;
                        case "tool_result":
                            open.remove(data.get("toolCallId"));
                            note("result: " + text(data.get("content")));
                            break;
                        case "turn_stop": print("\n"); return text(data.get("stopReason"));
                        default: break; // thinking, and events of newer servers
                    }
                    position = answer.id;
                    attempts.reset();
                }
            }
            attempts.pause("the connection broke");
        }
    }

    static final HttpClient HTTP = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();

    /** Sends a request until it is answered. All may be repeated: those that change something have an Idempotency-Key. */
    static Answer call(String method, String path, Object body, String... headers) throws Exception {
        HttpRequest.Builder request = HttpRequest.newBuilder(URI.create(API + path)).header("Authorization", "Bearer " + KEY);
        if (headers.length > 0) request.headers(headers);
        if (body == null) request.GET();
        else request.header("Content-Type", "application/json").POST(HttpRequest.BodyPublishers.ofString(Json.write(body)));
        Attempts attempts = new Attempts();
        while (true) {
            HttpResponse<InputStream> response;
            try {
                response = HTTP.sendAsync(request.build(), HttpResponse.BodyHandlers.ofInputStream())
                    .get(QUIET_SECONDS, TimeUnit.SECONDS);
            } catch (ExecutionException | TimeoutException error) {
                attempts.pause("no answer from " + API + " (" + (error.getCause() == null ? error : error.getCause()) + ")");
                continue;
            }
            Answer answer = new Answer(response);
            if (answer.status < 300) return answer;
            Map<String, Object> problem = Map.of();
            try {
                problem = object(answer.json());
            } catch (IOException | RuntimeException error) {
                // A proxy may answer with something that is not JSON.
            }
            String after = response.headers().firstValue("Retry-After").orElse("");
            long seconds = after.matches("\\d{1,9}") ? Long.parseLong(after) : Long.MAX_VALUE;
            if ((answer.status == 429 || answer.status == 503) && seconds <= LONGEST_WAIT_SECONDS) {
                note(text(problem.get("detail")) + " Waiting " + after + " s.");
                Thread.sleep(Math.max(1000 * seconds, 500));
            } else if (answer.status == 502 || answer.status == 504) {
                attempts.pause("the proxy answered " + answer.status);
            } else {
                StringBuilder message = new StringBuilder(answer.status + " " + text(problem.get("title")) + ": "
                    + text(problem.get("detail")) + " (" + text(problem.get("instance")) + ")");
                for (Object fault : list(problem.get("errors")))
                    message.append("\n  ").append(object(fault).get("pointer")).append(": ").append(object(fault).get("detail"));
                throw new Failure(message.toString());
            }
        }
    }

    /** Pauses between attempts. Gives up when nothing has succeeded for RETRY_MS. */
    static final class Attempts {
        private long until = System.nanoTime() + RETRY_MS * 1_000_000, pause = 250;

        void reset() {
            until = System.nanoTime() + RETRY_MS * 1_000_000;
            pause = 250;
        }

        void pause(String reason) throws InterruptedException {
            if (System.nanoTime() + pause * 1_000_000 > until) throw new Failure(reason);
            note(reason + "; trying again");
            // Random, so that many clients do not come back at the same moment.
            Thread.sleep(pause / 2 + ThreadLocalRandom.current().nextLong(pause / 2));
            pause = Math.min(2 * pause, 5000);
        }
    }

    /** The answer to a request: one JSON document, or server-sent events. */
    static final class Answer implements AutoCloseable {
        final int status;
        String id = "", event = "", data = ""; // of the current event
        private final InputStream stream;
        private final BufferedReader lines;

        Answer(HttpResponse<InputStream> response) {
            status = response.statusCode();
            stream = response.body();
            // Keeps the first bytes of a character until the rest arrives, and knows all line ends: LF, CRLF and CR.
            lines = new BufferedReader(new InputStreamReader(stream, StandardCharsets.UTF_8));
        }

        Object json() throws IOException {
            StringWriter content = new StringWriter();
            try (this) { lines.transferTo(content); }
            return Json.read(content.toString());
        }

        /** Waits for the next event; false if the connection breaks. An event without its empty line is not complete. */
        boolean nextEvent() {
            String nextId = id;
            List<String> pieces = new ArrayList<>();
            event = "";
            try {
                for (String line; (line = nextLine()) != null; ) {
                    int colon = line.indexOf(':'); // first in a comment, whose field has no name
                    String field = colon < 0 ? line : line.substring(0, colon);
                    String value = colon < 0 ? "" : line.substring(colon + 1).replaceFirst("^ ", "");
                    if (field.equals("data")) pieces.add(value);
                    else if (field.equals("event")) event = value;
                    else if (field.equals("id")) nextId = value;
                    else if (line.isEmpty() && pieces.isEmpty()) event = "";
                    else if (line.isEmpty()) {
                        id = nextId;
                        data = String.join("\n", pieces);
                        return true;
                    }
                }
            } catch (IOException broken) {
                // As at the end: the caller continues after the last complete event.
            }
            return false;
        }

        private String nextLine() throws IOException {
            CompletableFuture<?> line = new CompletableFuture<>().orTimeout(QUIET_SECONDS, TimeUnit.SECONDS);
            line.exceptionally(quiet -> { close(); return null; }); // ends readLine
            try { return lines.readLine(); } finally { line.complete(null); }
        }

        @Override public void close() {
            try { stream.close(); } catch (IOException closed) { /* which is what we want */ }
        }
    }

    /** The program cannot continue. The message is for the user. */
    @SuppressWarnings("serial")
    static final class Failure extends RuntimeException {
        Failure(String message) { super(message); }
    }

    // --- the terminal ---

    static final BufferedReader INPUT = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    static final PrintStream OUTPUT = utf8(FileDescriptor.out), NOTES = utf8(FileDescriptor.err);

    /** The next line of standard input; null at its end. */
    static String ask(String question) throws IOException {
        NOTES.print(printable(question));
        NOTES.flush();
        return INPUT.readLine();
    }

    static void print(String text) {
        OUTPUT.print(printable(text));
        OUTPUT.flush();
    }

    static void note(String text) { NOTES.println("[" + printable(text) + "]"); }

    /** Texts of a model or a tool must not control the terminal. */
    static String printable(String text) { return text.replaceAll("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f]", "\ufffd"); }

    static PrintStream utf8(FileDescriptor where) {
        return new PrintStream(new FileOutputStream(where), true, StandardCharsets.UTF_8);
    }

    static String setting(String name, String otherwise) { return System.getenv().getOrDefault(name, otherwise); }

    static String newKey() { return UUID.randomUUID().toString(); }

    // --- JSON, as maps, lists, strings, numbers, booleans and null. In your application a library does this. ---

    @SuppressWarnings("unchecked")
    static Map<String, Object> object(Object value) { return value instanceof Map ? (Map<String, Object>) value : Map.of(); }

    static List<?> list(Object value) { return value instanceof List ? (List<?>) value : List.of(); }

    static String text(Object value) { return value == null ? "" : value instanceof String ? (String) value : Json.write(value); }

    static final class Json {
        private static final String ESCAPED = "\"\\/bfnrt", MEANT = "\"\\/\b\f\n\r\t";
        private final String text;
        private int at;

        private Json(String text) { this.text = text; }

        static Object read(String text) { return new Json(text).value(); }

        private Object value() {
            if (next('{')) {
                Map<String, Object> members = new LinkedHashMap<>();
                while (!next('}')) {
                    String name = (String) value();
                    if (!next(':')) throw new IllegalArgumentException("no colon at " + at);
                    members.put(name, value());
                    next(',');
                }
                return members;
            }
            if (next('[')) {
                List<Object> elements = new ArrayList<>();
                for (; !next(']'); next(',')) elements.add(value());
                return elements;
            }
            if (next('"')) return string();
            int start = at;
            while (at < text.length() && (Character.isLetterOrDigit(text.charAt(at)) || "+-.".indexOf(text.charAt(at)) >= 0)) at++;
            switch (text.substring(start, at)) {
                case "null": return null;
                case "true": return true;
                case "false": return false;
                default: return new BigDecimal(text.substring(start, at));
            }
        }

        private boolean next(char wanted) {
            while (Character.isWhitespace(text.charAt(at))) at++;
            if (text.charAt(at) != wanted) return false;
            at++;
            return true;
        }

        private String string() {
            StringBuilder out = new StringBuilder();
            for (char c; (c = text.charAt(at++)) != '"'; ) {
                if (c != '\\') out.append(c);
                else if ((c = text.charAt(at++)) != 'u') out.append(MEANT.charAt(ESCAPED.indexOf(c)));
                else out.append((char) Integer.parseInt(text.substring(at, at += 4), 16));
            }
            return out.toString();
        }

        static String write(Object value) {
            if (value instanceof Map) {
                StringJoiner members = new StringJoiner(",", "{", "}");
                ((Map<?, ?>) value).forEach((name, member) -> members.add(write(name) + ":" + write(member)));
                return members.toString();
            }
            if (value instanceof List) {
                StringJoiner elements = new StringJoiner(",", "[", "]");
                for (Object element : (List<?>) value) elements.add(write(element));
                return elements.toString();
            }
            if (!(value instanceof String)) return String.valueOf(value);
            StringBuilder out = new StringBuilder("\"");
            for (char c : ((String) value).toCharArray()) {
                if (c < ' ' || c == '"' || c == '\\') out.append(String.format("\\u%04x", (int) c));
                else out.append(c);
            }
            return out.append('"').toString();
        }
    }
}
