package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// traceSink is a collector that records what it receives without decoding it.
type traceSink struct {
	app

	mu   sync.Mutex // guards the fields below
	sent map[string][]byte
	keys []string // that come with it
}

func (s *traceSink) keep(where string, body []byte, keys ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent == nil {
		s.sent = map[string][]byte{}
	}
	s.sent[where], s.keys = append(s.sent[where], body...), append(s.keys, keys...)
}

// told reports whether a message at a path contained all words.
func (s *traceSink) told(where string, words ...string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range words {
		if !bytes.Contains(s.sent[where], []byte(w)) {
			return false
		}
	}
	return true
}

// toldKey reports whether a message came with that key.
func (s *traceSink) toldKey(key string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.keys, key)
}

func (s *traceSink) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%.3000q", s.sent)
}

// startDatadog is an agent of Datadog, which takes all spans.
func startDatadog(t *testing.T) *traceSink {
	t.Helper()
	s := &traceSink{app: app{name: "datadog", ip: ownIP()}}
	serving := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.keep(r.URL.Path, body)
		_, _ = io.WriteString(w, `{"rate_by_service": {}}`)
	})}
	ln := s.listen(t)
	var ends sync.WaitGroup
	ends.Go(func() { _ = serving.Serve(ln) })
	t.Cleanup(func() {
		_ = serving.Close()
		ends.Wait()
	})
	return s
}

// startSkyWalking starts SkyWalking's receiver.
func startSkyWalking(t *testing.T) *traceSink {
	t.Helper()
	s := &traceSink{app: app{name: "skywalking", ip: ownIP()}}
	serving := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		method, _ := grpc.MethodFromServerStream(stream)
		md, _ := metadata.FromIncomingContext(stream.Context())
		for {
			m := &emptypb.Empty{} // keeps unknown fields
			if err := stream.RecvMsg(m); err != nil {
				return err
			}
			s.keep(method, m.ProtoReflect().GetUnknown(), md.Get("authentication")...)
		}
	}))
	ln := s.listen(t)
	var ends sync.WaitGroup
	ends.Go(func() { _ = serving.Serve(ln) })
	t.Cleanup(func() { serving.Stop(); ends.Wait() })
	return s
}

// document is the collector as a service outside of the mesh.
func (s *traceSink) document(port int, protocol string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: %[1]s, namespace: shop}
spec:
  hosts: [%[1]s.example.com]
  resolution: STATIC
  ports: [{number: %[2]d, name: %[3]s, protocol: %[3]s, targetPort: %[4]d}]
  endpoints: [{address: %[5]s}]`, s.name, port, protocol, s.port, s.ip)
}

// TestTracers checks that collectors of Datadog and SkyWalking receive the spans of calls with the names of their
// workloads.
func TestTracers(t *testing.T) {
	datadog, sky := startDatadog(t), startSkyWalking(t)
	m := startMutual(t)
	tell := func(provider string) {
		t.Helper()
		m.apply(m.config("server", meshConfig(fmt.Sprintf(`defaultConfig: {tracing: {sampling: 100}}
defaultProviders: {tracing: [%s]}
extensionProviders:
- {name: dd, datadog: {service: datadog.example.com, port: 8126}}
- {name: sky, skywalking: {service: skywalking.example.com, port: 11800, accessToken: secret}}`, provider)),
			datadog.document(8126, "HTTP"), sky.document(11800, "GRPC"))...)
	}
	called := fmt.Sprintf("server.shop.svc.cluster.local:%d/*", serviceHTTP)
	has := func(s *traceSink, where string, words ...string) {
		t.Helper()
		eventually(t, s.name+" has spans", func() bool {
			status, _ := m.call("server", serviceHTTP)
			return status == http.StatusOK && s.told(where, words...)
		}, s.String)
	}
	tell("dd")
	const service = "service\xdb\x00\x00\x00\x0b" // a key and the length of its value, in MessagePack
	has(datadog, "/v0.4/traces", service+"client.shop", service+"server.shop", called)
	tell("sky")
	has(sky, "/skywalking.v3.TraceSegmentReportService/collect",
		"\"\x0bclient.shop", "\"\x0bserver.shop", // whose segments they are
		"*\x0bclient.shop") // the caller that one of them names
	require.True(t, sky.toldKey("secret"))
	m.requireNothingHeld()
}
