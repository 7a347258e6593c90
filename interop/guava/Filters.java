import com.google.common.hash.BloomFilter;
import com.google.common.hash.Funnel;
import com.google.common.hash.Funnels;
import com.google.common.hash.Hashing;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;

/**
 * The real Guava, for tests of what seenset reads and writes of its filters.
 *
 * <pre>
 * java -cp guava.jar interop/guava/Filters.java create STRATEGY FUNNEL CAPACITY RATE KEYS FILE
 * java -cp guava.jar interop/guava/Filters.java query FUNNEL KEYS FILE
 * java -cp guava.jar interop/guava/Filters.java sizes &lt; REQUESTS
 * java -cp guava.jar interop/guava/Filters.java hash KEYS
 * </pre>
 *
 * STRATEGY is Guava's ordinal, 0 or 1, and FUNNEL is string or bytes. KEYS is a file with a key in
 * hexadecimal digits on each line. A create writes a filter of all keys; a query prints how many
 * keys it finds and how many there are. REQUESTS are lines of a capacity and a rate, and what sizes
 * answers each with is the hash count and the number of words, or 0 and 0 where Guava makes no
 * filter.
 */
public final class Filters {
  public static void main(String[] args) throws Exception {
    List<String> arguments = Arrays.asList(args).subList(1, args.length);
    switch (args[0]) {
      case "create" -> create(arguments);
      case "query" -> query(arguments);
      case "sizes" -> sizes();
      case "hash" -> hash(arguments);
      default -> throw new IllegalArgumentException(args[0]);
    }
  }

  private static void create(List<String> arguments) throws Exception {
    int strategy = Integer.parseInt(arguments.get(0));
    long capacity = Long.parseLong(arguments.get(2));
    double rate = Double.parseDouble(arguments.get(3));
    boolean strings = strings(arguments.get(1));
    BloomFilter<Object> filter = make(funnel(strings), capacity, rate, strategy);
    for (Object key : keys(arguments.get(4), strings)) {
      filter.put(key);
    }
    Path path = Path.of(arguments.get(5));
    try (OutputStream file = new BufferedOutputStream(Files.newOutputStream(path))) {
      filter.writeTo(file);
    }
  }

  private static void query(List<String> arguments) throws Exception {
    boolean strings = strings(arguments.get(0));
    Path path = Path.of(arguments.get(2));
    BloomFilter<Object> filter;
    try (InputStream file = new BufferedInputStream(Files.newInputStream(path))) {
      filter = BloomFilter.readFrom(file, funnel(strings));
      if (file.read() != -1) {
        throw new IllegalArgumentException("the file goes on behind the filter");
      }
    }
    ByteArrayOutputStream again = new ByteArrayOutputStream();
    filter.writeTo(again);
    if (!Arrays.equals(again.toByteArray(), Files.readAllBytes(path))) {
      throw new IllegalArgumentException("Guava writes the filter that it has read as other bytes");
    }
    List<Object> keys = keys(arguments.get(1), strings);
    System.out.println(keys.stream().filter(filter::mightContain).count() + " " + keys.size());
  }

  private static void sizes() throws Exception {
    for (String line : new BufferedReader(new InputStreamReader(System.in)).lines().toList()) {
      String[] request = line.split(" ");
      long capacity = Long.parseLong(request[0]);
      double rate = Double.parseDouble(request[1]);
      long bits = (long) call("optimalNumOfBits", capacity, rate);
      long words = (bits + 63) / 64;
      int hashes =
          sizedByRate()
              ? (int) call("optimalNumOfHashFunctions", rate)
              : (int) call("optimalNumOfHashFunctions", capacity, bits);
      boolean possible = 0 < words && words <= Integer.MAX_VALUE;
      System.out.println(possible ? hashes + " " + words : "0 0");
    }
  }

  private static void hash(List<String> arguments) throws Exception {
    for (Object key : keys(arguments.get(0), false)) {
      System.out.println(Hashing.murmur3_128().hashBytes((byte[]) key));
    }
  }

  /** The strategy can be chosen by Guava alone, which takes the newest. */
  private static BloomFilter<Object> make(
      Funnel<Object> funnel, long capacity, double rate, int strategy) throws Exception {
    Class<?> type = Class.forName("com.google.common.hash.BloomFilter$Strategy");
    Method create =
        BloomFilter.class.getDeclaredMethod(
            "create", Funnel.class, long.class, double.class, type);
    create.setAccessible(true);
    Object[] all =
        Class.forName("com.google.common.hash.BloomFilterStrategies").getEnumConstants();
    @SuppressWarnings("unchecked")
    BloomFilter<Object> filter =
        (BloomFilter<Object>) create.invoke(null, funnel, capacity, rate, all[strategy]);
    return filter;
  }

  /** Whether this Guava computes the number of hashes from the rate alone. */
  private static boolean sizedByRate() {
    return Arrays.stream(BloomFilter.class.getDeclaredMethods())
        .anyMatch(
            method ->
                method.getName().equals("optimalNumOfHashFunctions")
                    && method.getParameterCount() == 1);
  }

  private static Object call(String name, Object... arguments) throws Exception {
    for (Method method : BloomFilter.class.getDeclaredMethods()) {
      if (method.getName().equals(name)) {
        method.setAccessible(true);
        try {
          return method.invoke(null, arguments);
        } catch (InvocationTargetException e) {
          throw (Exception) e.getCause();
        }
      }
    }
    throw new NoSuchMethodException(name);
  }

  private static boolean strings(String funnel) {
    return switch (funnel) {
      case "string" -> true;
      case "bytes" -> false;
      default -> throw new IllegalArgumentException(funnel);
    };
  }

  @SuppressWarnings("unchecked")
  private static Funnel<Object> funnel(boolean strings) {
    Funnel<?> funnel =
        strings ? Funnels.stringFunnel(StandardCharsets.UTF_8) : Funnels.byteArrayFunnel();
    return (Funnel<Object>) funnel;
  }

  private static List<Object> keys(String path, boolean strings) throws Exception {
    return Files.readAllLines(Path.of(path)).stream()
        .map(HexFormat.of()::parseHex)
        .map(key -> strings ? (Object) new String(key, StandardCharsets.UTF_8) : key)
        .toList();
  }

  private Filters() {}
}
