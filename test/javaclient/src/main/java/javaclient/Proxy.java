package javaclient;

import io.envoyproxy.envoy.config.core.v3.Node;
import io.envoyproxy.envoy.service.discovery.v3.AggregatedDiscoveryServiceGrpc;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryRequest;
import io.envoyproxy.envoy.service.discovery.v3.DeltaDiscoveryResponse;
import io.envoyproxy.envoy.service.discovery.v3.Resource;
import io.grpc.Channel;
import io.grpc.Status;
import io.grpc.stub.StreamObserver;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A proxy on one stream of delta ADS. */
final class Proxy implements StreamObserver<DeltaDiscoveryResponse> {
  static final String CDS = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
  static final String EDS = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
  static final int PATIENCE = 120; // seconds

  private final BlockingQueue<DeltaDiscoveryResponse> got = new LinkedBlockingQueue<>();
  private final CompletableFuture<Status> ended = new CompletableFuture<>();
  private final StreamObserver<DeltaDiscoveryRequest> out;
  private boolean told; // the node was sent

  Proxy(Channel channel) {
    out = AggregatedDiscoveryServiceGrpc.newStub(channel).withWaitForReady().deltaAggregatedResources(this);
  }

  void subscribe(String type, Map<String, String> versions, List<String> names) {
    send(DeltaDiscoveryRequest.newBuilder().setTypeUrl(type).putAllInitialResourceVersions(versions).addAllResourceNamesSubscribe(names));
  }

  private void send(DeltaDiscoveryRequest.Builder r) {
    if (!told) {
      told = true;
      r.setNode(Node.newBuilder().setId("sidecar~10.0.0.1~web-1.shop~shop.svc.cluster.local").setUserAgentName("java"));
    }
    out.onNext(r.build());
  }

  /** take gives the next response of a type, and ACKs all that come until then. */
  DeltaDiscoveryResponse take(String type) throws Exception {
    while (true) {
      DeltaDiscoveryResponse r = got.poll(PATIENCE, TimeUnit.SECONDS);
      Main.check(r != null, "a response comes; the stream has " + ended.getNow(null));
      send(DeltaDiscoveryRequest.newBuilder().setTypeUrl(r.getTypeUrl()).setResponseNonce(r.getNonce()));
      if (r.getTypeUrl().equals(type)) {
        return r;
      }
    }
  }

  /** await takes responses of a type until one has a resource with this in it, and gives that. */
  Resource await(String type, String name, String part) throws Exception {
    while (true) {
      for (Resource r : take(type).getResourcesList()) {
        if (r.getName().equals(name) && has(r, part)) {
          return r;
        }
      }
    }
  }

  private static boolean has(Resource r, String part) {
    return r.getResource().getValue().toString(java.nio.charset.StandardCharsets.ISO_8859_1).contains(part);
  }

  Status awaitEnd() throws Exception {
    return ended.get(PATIENCE, TimeUnit.SECONDS);
  }

  boolean open() {
    return !ended.isDone();
  }

  void leave() throws Exception {
    out.onCompleted();
    Main.check(awaitEnd().isOk(), "a stream that its client ends has ended well: " + awaitEnd());
  }

  @Override
  public void onNext(DeltaDiscoveryResponse r) {
    got.add(r);
  }

  @Override
  public void onError(Throwable t) {
    ended.complete(Status.fromThrowable(t));
  }

  @Override
  public void onCompleted() {
    ended.complete(Status.OK);
  }

  static int size(DeltaDiscoveryResponse r) {
    return r.getSerializedSize();
  }
}
