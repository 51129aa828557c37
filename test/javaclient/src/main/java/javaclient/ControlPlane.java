package javaclient;

import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.concurrent.TimeUnit;

/** moonsail serve, on a mesh in files. */
final class ControlPlane implements AutoCloseable {
  static final int SERVICES = 4000;
  static final String CHANGING = "outbound|80||changing.example.com";
  static final String TOKEN = "a-token-of-web";

  final int plain = freePort();
  final int secure = freePort();
  private final String binary;
  private final String transport;
  private final Path dir;
  private Process process;

  ControlPlane(String binary, String transport, Path dir) throws IOException {
    this.binary = binary;
    this.transport = transport;
    this.dir = dir;
    Files.createDirectories(dir.resolve("mesh"));
    Files.writeString(dir.resolve("tokens"), TOKEN + ",shop,web\n");
    StringBuilder all = new StringBuilder();
    for (int i = 0; i < SERVICES; i++) {
      all.append(entry("service-number-" + i, "10.1." + i / 250 + "." + (i % 250 + 1)));
    }
    write("services.yaml", all.toString());
    change("10.2.0.1");
  }

  /** change gives the one service that changes another endpoint. */
  void change(String address) throws IOException {
    write("changing.yaml", entry("changing", address));
  }

  Path roots() {
    return dir.resolve("ca").resolve("root-cert.pem");
  }

  void start() throws IOException {
    process = new ProcessBuilder(binary, "serve", "--config", dir.resolve("mesh").toString(), "--http-addr", "",
            "--ca-dir", dir.resolve("ca").toString(), "--token-auth-file", dir.resolve("tokens").toString(),
            "--xds-plaintext-addr", "127.0.0.1:" + plain, "--xds-addr", "127.0.0.1:" + secure, "--xds-transport", transport)
        .redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.appendTo(dir.resolve("log").toFile())).start();
  }

  /** terminate sends SIGTERM. */
  void terminate() {
    process.destroy();
  }

  void awaitEnd() throws InterruptedException {
    Main.check(process.waitFor(30, TimeUnit.SECONDS), "the control plane has ended");
  }

  @Override
  public void close() throws Exception {
    terminate();
    awaitEnd();
  }


  private void write(String name, String text) throws IOException {
    Path p = dir.resolve(name);
    Files.writeString(p, text);
    Files.move(p, dir.resolve("mesh").resolve(name), StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
  }

  private static String entry(String name, String address) {
    return String.format("""
        apiVersion: networking.istio.io/v1
        kind: ServiceEntry
        metadata: {name: %1$s, namespace: shop}
        spec: {hosts: [%1$s.example.com], ports: [{number: 80, name: http, protocol: HTTP}], resolution: STATIC, endpoints: [{address: %2$s}]}
        ---
        """, name, address);
  }

  private static int freePort() {
    try (ServerSocket s = new ServerSocket(0)) {
      return s.getLocalPort();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }
}
