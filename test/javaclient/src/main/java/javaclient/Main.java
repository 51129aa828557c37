package javaclient;

import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.Resource;
import io.grpc.ManagedChannel;
import io.grpc.Status;
import io.grpc.netty.shaded.io.grpc.netty.GrpcSslContexts;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.netty.handler.ssl.SslContextBuilder;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/** Tries delta ADS on grpc-java against moonsail serve: arguments are its binary, and a transport. */
public final class Main {
  private static final int WINDOW = 64 << 10; // of flow control: some dozens of it make one response
  private static final int LARGE = 2 << 20;

  private final ControlPlane served;
  private final Path dir;

  private Main(ControlPlane served, Path dir) {
    this.served = served;
    this.dir = dir;
  }

  public static void main(String[] args) throws Exception {
    for (String transport : args[1].split(",")) {
      Path dir = Files.createTempDirectory("javaclient");
      try (ControlPlane c = new ControlPlane(args[0], transport, dir)) {
        c.start();
        new Main(c, dir).run();
      } catch (Throwable t) {
        System.err.println(Files.readString(dir.resolve("log")));
        throw t;
      }
      System.out.println("ok: " + transport);
    }
  }


  private void run() throws Exception {
    NettyChannelBuilder plain = NettyChannelBuilder.forAddress("127.0.0.1", served.plain).usePlaintext();
    ManagedChannel channel = tuned(plain);
    changes(channel, "10.2.0.1", "10.2.0.2");
    restarts(channel);
    channel.shutdownNow();
    identities();
  }

  private static ManagedChannel tuned(NettyChannelBuilder b) {
    return b.initialFlowControlWindow(WINDOW).maxInboundMessageSize(64 << 20)
        .keepAliveTime(10, TimeUnit.SECONDS).keepAliveTimeout(10, TimeUnit.SECONDS).keepAliveWithoutCalls(true).build();
  }

  /** All clusters through small windows, a change, and another one after some pings. */
  private void changes(ManagedChannel channel, String before, String after) throws Exception {
    Proxy p = new Proxy(channel);
    p.subscribe(Proxy.CDS, Map.of(), List.of());
    DeltaDiscoveryResponse r = p.take(Proxy.CDS);
    check(r.getResourcesCount() >= ControlPlane.SERVICES, "all clusters are there: " + r.getResourcesCount());
    check(Proxy.size(r) >= LARGE, "they are larger than the windows: " + Proxy.size(r));
    p.subscribe(Proxy.EDS, Map.of(), List.of(ControlPlane.CHANGING));
    p.await(Proxy.EDS, ControlPlane.CHANGING, before);
    served.change(after);
    p.await(Proxy.EDS, ControlPlane.CHANGING, after);
    Thread.sleep(35_000); // three pings of the client's, one of the server's
    check(p.open(), "pings keep the stream");
    served.change(before);
    p.await(Proxy.EDS, ControlPlane.CHANGING, before);
    p.leave();
    said("several MB through windows of 64 KiB, changes, keep-alive");
  }

  /** The control plane ends, and starts again: the client is told, and gets what differs alone. */
  private void restarts(ManagedChannel channel) throws Exception {
    Proxy p = new Proxy(channel);
    p.subscribe(Proxy.CDS, Map.of(), List.of());
    Map<String, String> has = versions(p.take(Proxy.CDS));
    p.subscribe(Proxy.EDS, Map.of(), List.of(ControlPlane.CHANGING));
    Resource changing = p.await(Proxy.EDS, ControlPlane.CHANGING, "10.2.0.1");
    served.terminate();
    Status end = p.awaitEnd();
    check(end.getCode() == Status.Code.UNAVAILABLE && end.getDescription().contains("this control plane stops"), "it is told: " + end);
    served.awaitEnd();
    served.start();
    Proxy again = new Proxy(channel);
    again.subscribe(Proxy.CDS, has, List.of());
    again.subscribe(Proxy.EDS, Map.of(changing.getName(), changing.getVersion()), List.of(changing.getName()));
    served.change("10.2.0.9");
    DeltaDiscoveryResponse r = again.take(Proxy.EDS);
    check(r.getResourcesCount() == 1 && r.getResources(0).getName().equals(ControlPlane.CHANGING), "what differs alone comes: " + r);
    again.leave();
    said("GOAWAY and UNAVAILABLE at the end, connected again, what differs alone");
  }

  /** TLS: who shows no certificate is refused, and gets one by a token; with it all is well. */
  private void identities() throws Exception {
    ManagedChannel stranger = tuned(secure(null));
    Proxy p = new Proxy(stranger);
    p.subscribe(Proxy.CDS, Map.of(), List.of());
    check(p.awaitEnd().getCode() == Status.Code.UNAUTHENTICATED, "who is it? " + p.awaitEnd());
    Identity id = Identity.create(stranger, ControlPlane.TOKEN, dir);
    stranger.shutdownNow();
    ManagedChannel channel = tuned(secure(id));
    changes(channel, "10.2.0.9", "10.2.0.3");
    Map<String, String> many = new HashMap<>();
    for (int i = 0; i < 20_000; i++) {
      many.put("outbound|8080|version-1|some-service-with-a-name-" + i + ".namespace-of-it.svc.cluster.local", "0123456789abcdef");
    }
    Proxy large = new Proxy(channel);
    large.subscribe(Proxy.CDS, many, List.of());
    check(large.take(Proxy.CDS).getResourcesCount() >= ControlPlane.SERVICES, "a large request is answered");
    large.leave();
    channel.shutdownNow();
    said("TLS: refused without a certificate, one by a token, the same with it, 20,000 names in one request");
  }

  private NettyChannelBuilder secure(Identity id) throws Exception {
    SslContextBuilder tls = GrpcSslContexts.forClient().trustManager(served.roots().toFile());
    if (id != null) {
      java.security.cert.CertificateFactory f = java.security.cert.CertificateFactory.getInstance("X.509");
      tls.keyManager(id.key(), f.generateCertificates(id.chain()).toArray(java.security.cert.X509Certificate[]::new));
    }
    return NettyChannelBuilder.forAddress("127.0.0.1", served.secure).sslContext(tls.build());
  }

  private static Map<String, String> versions(DeltaDiscoveryResponse r) {
    return r.getResourcesList().stream().collect(Collectors.toMap(Resource::getName, Resource::getVersion));
  }

  private static void said(String what) {
    System.out.println("  " + what);
  }

  static void check(boolean ok, String what) {
    if (!ok) {
      throw new AssertionError("it is not so that " + what);
    }
  }
}
