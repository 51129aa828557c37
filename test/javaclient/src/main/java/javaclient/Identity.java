package javaclient;

import com.google.protobuf.CodedInputStream;
import com.google.protobuf.CodedOutputStream;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.ClientInterceptors;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.PrivateKey;

/** A workload's key, and its certificate from the control plane by a token. */
record Identity(InputStream chain, PrivateKey key) {
  private static final String PASSWORD = "changeit";

  /** raw passes messages as they are. */
  private static final MethodDescriptor.Marshaller<byte[]> RAW = new MethodDescriptor.Marshaller<>() {
    @Override
    public InputStream stream(byte[] b) {
      return new ByteArrayInputStream(b);
    }

    @Override
    public byte[] parse(InputStream in) {
      try {
        return in.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  };

  static Identity create(Channel channel, String token, Path dir) throws Exception {
    Path store = dir.resolve("key.p12");
    Path csr = dir.resolve("csr.pem");
    keytool("-genkeypair", "-alias", "web", "-keyalg", "EC", "-groupname", "secp256r1", "-dname", "CN=web", "-keystore", store.toString());
    keytool("-certreq", "-alias", "web", "-keystore", store.toString(), "-file", csr.toString());
    byte[] answer = call(channel, token, request(Files.readString(csr).replace("NEW CERTIFICATE", "CERTIFICATE")));
    KeyStore keys = KeyStore.getInstance(store.toFile(), PASSWORD.toCharArray());
    return new Identity(new ByteArrayInputStream(chain(answer)), (PrivateKey) keys.getKey("web", PASSWORD.toCharArray()));
  }

  private static byte[] call(Channel channel, String token, byte[] request) {
    Metadata head = new Metadata();
    head.put(Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER), "Bearer " + token);
    MethodDescriptor<byte[], byte[]> method = MethodDescriptor.newBuilder(RAW, RAW).setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("istio.v1.auth.IstioCertificateService/CreateCertificate").build();
    return ClientCalls.blockingUnaryCall(ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(head)),
        method, CallOptions.DEFAULT.withWaitForReady(), request);
  }

  /** request is an IstioCertificateRequest: the CSR is its first field. */
  private static byte[] request(String csr) throws IOException {
    ByteArrayOutputStream b = new ByteArrayOutputStream();
    CodedOutputStream out = CodedOutputStream.newInstance(b);
    out.writeString(1, csr);
    out.flush();
    return b.toByteArray();
  }

  /** chain is what an IstioCertificateResponse has: certificates are its first field. */
  private static byte[] chain(byte[] response) throws IOException {
    StringBuilder pem = new StringBuilder();
    CodedInputStream in = CodedInputStream.newInstance(response);
    for (int tag = in.readTag(); tag != 0; tag = in.readTag()) {
      pem.append(in.readString()).append('\n');
    }
    return pem.toString().getBytes(StandardCharsets.US_ASCII);
  }

  private static void keytool(String... args) throws Exception {
    java.util.List<String> command = new java.util.ArrayList<>(java.util.List.of("keytool"));
    command.addAll(java.util.List.of(args));
    command.addAll(java.util.List.of("-storetype", "PKCS12", "-storepass", PASSWORD));
    Process p = new ProcessBuilder(command).redirectErrorStream(true).start();
    String said = new String(p.getInputStream().readAllBytes(), StandardCharsets.UTF_8);
    Main.check(p.waitFor() == 0, "keytool: " + said);
  }
}
