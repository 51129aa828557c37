package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
	"github.com/moonsail/moonsail/test/await"
)

// TestIsInline: event loops process no requests that may wait for the engine.
func TestIsInline(t *testing.T) {
	quick := func(p ledger.Protocol, bound bool, m proto.Message) bool {
		st := &stream{protocol: p}
		if bound {
			st.proxy = &model.Proxy{}
		}
		b, err := proto.Marshal(m)
		require.NoError(t, err)
		return http2Receiver{st}.IsInline(b)
	}
	ack := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.EndpointsURL, ResponseNonce: "7", ResourceNamesSubscribe: []string{"a"}}
	require.True(t, quick(ledger.Delta, true, ack))
	require.False(t, quick(ledger.Delta, false, ack), "the first")
	has := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: resource.ScopeURL, InitialResourceVersions: map[string]string{"a": "1"}}
	require.False(t, quick(ledger.Delta, true, has))
	require.True(t, quick(ledger.Sotw, true, &discoveryv3.DiscoveryRequest{TypeUrl: resource.ClusterURL, ResponseNonce: "7"}))
	require.False(t, http2Receiver{&stream{proxy: &model.Proxy{}}}.IsInline([]byte{0x1a, 0xff}), "malformed")
}

// TestTooManyNames: a stream that subscribes to too many names ends, and its error names the limit.
func TestTooManyNames(t *testing.T) {
	many := make([]string, 1<<16+1)
	for i := range many {
		many[i] = fmt.Sprint("outbound|80||host-", i)
	}
	overEach(t, func(t *testing.T, on Transport) {
		h := newHarness(t, on, Options{})
		c := h.warm("")
		c.subscribe(resource.Endpoints, many...)
		err := c.end()
		require.Equal(t, codes.ResourceExhausted, status.Code(err))
		require.ErrorContains(t, err, "app-1.shop: subscriptions of one request: 65537 names")
		c = h.connect("")
		c.subscribe(resource.Endpoints, string(bytes.Repeat([]byte("x"), maxNameLength+1)))
		err = c.end()
		require.Equal(t, codes.InvalidArgument, status.Code(err))
		require.ErrorContains(t, err, "a resource name has 16385 bytes: the limit is 16384")
	})
}

// TestLongErrors: of a long error message, the beginning and the end are kept.
func TestLongErrors(t *testing.T) {
	for text, want := range map[string]string{
		"short": "short",
		strings.Repeat("a", maxErrorEnd) + strings.Repeat("x", 1<<20) + strings.Repeat("z", maxErrorEnd): strings.Repeat("a", maxErrorEnd) +
			" ... " + strings.Repeat("z", maxErrorEnd),
	} {
		b, err := proto.Marshal(&discoveryv3.DeltaDiscoveryRequest{ErrorDetail: &rpcstatus.Status{Message: text}})
		require.NoError(t, err)
		var r request
		require.NoError(t, r.parse(ledger.Delta, b))
		require.Equal(t, want, r.Error.Message)
	}
}

// TestExpandingRequests: small entries that would need many times their size are refused before they are stored, and the pool
// keeps no room for many.
func TestExpandingRequests(t *testing.T) {
	const many = 1 << 20
	for name, c := range map[string]struct {
		protocol ledger.Protocol
		entry    string
		err      string
	}{
		"versions without names": {ledger.Delta, "\x2a\x00", "an entry without a name"},
		"versions":               {ledger.Delta, "\x2a\x03\x0a\x01a", "more than 262144 resource names"},
		"subscriptions":          {ledger.Delta, "\x1a\x00", "more than 262144 resource names"},
		"unsubscriptions":        {ledger.Delta, "\x22\x00", "more than 262144 resource names"},
		"both":                   {ledger.Delta, "\x1a\x00\x22\x00", "more than 262144 resource names"},
		"state-of-the-world":     {ledger.Sotw, "\x1a\x00", "more than 262144 resource names"},
	} {
		t.Run(name, func(t *testing.T) {
			b := []byte(strings.Repeat(c.entry, many))
			var r request
			require.ErrorContains(t, r.parse(c.protocol, b), c.err)
			require.LessOrEqual(t, max(cap(r.Initial), cap(r.Subscribe), cap(r.Unsubscribe), cap(r.Names)), maxEntries*3/2)
			r.giveBack()
			for range 100 {
				p := requests.Get().(*request)
				require.LessOrEqual(t, max(cap(p.Initial), cap(p.Subscribe), cap(p.Unsubscribe), cap(p.Names)), maxPooled)
			}
		})
	}
	var r request
	require.NoError(t, r.parse(ledger.Delta, []byte(strings.Repeat("\x2a\x03\x0a\x01a", maxEntries))))
	require.Len(t, r.Initial, maxEntries)
}

// FuzzParseRequest compares the scanner with protobuf's decoder, and passes what it accepts to a
// ledger.
func FuzzParseRequest(f *testing.F) {
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{},
		{TypeUrl: resource.ClusterURL, Node: &corev3.Node{Id: nodeID}},
		{TypeUrl: resource.EndpointsURL, ResourceNamesSubscribe: []string{"a", "b", "*"}, ResourceNamesUnsubscribe: []string{"a"}},
		{TypeUrl: resource.VirtualHostURL, InitialResourceVersions: map[string]string{"80/a": "1", "80/b": ""}},
		{TypeUrl: resource.ListenerURL, ResponseNonce: "1", ErrorDetail: &rpcstatus.Status{Code: 3, Message: "l1 is bad"}},
	} {
		b, err := proto.Marshal(r)
		require.NoError(f, err)
		f.Add(b)
	}
	f.Add([]byte{0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		fuzzDelta(t, b)
		fuzzSotw(t, b)
	})
}

func fuzzDelta(t *testing.T, b []byte) {
	var r request
	err := r.parse(ledger.Delta, b)
	var want discoveryv3.DeltaDiscoveryRequest
	valid := proto.Unmarshal(b, &want) == nil && plain(b)
	if _, nameless := want.InitialResourceVersions[""]; valid && !nameless {
		require.NoError(t, err)
		require.Equal(t, want.TypeUrl, string(r.TypeURL))
		require.Equal(t, want.ResponseNonce, string(r.Nonce))
		require.Equal(t, want.ResourceNamesSubscribe, text(r.Subscribe))
		require.Equal(t, want.ResourceNamesUnsubscribe, text(r.Unsubscribe))
		require.Equal(t, want.ErrorDetail != nil, r.Error != nil)
		got := map[string]string{}
		for _, nv := range r.Initial {
			got[string(nv.Name)] = string(nv.Version)
		}
		require.Len(t, got, len(want.InitialResourceVersions))
	}
	if err == nil {
		try(ledger.New(ledger.Delta, ledger.VirtualHosts, names.NewPool(), someStates()), &r)
	}
}

func fuzzSotw(t *testing.T, b []byte) {
	var r request
	err := r.parse(ledger.Sotw, b)
	var want discoveryv3.DiscoveryRequest
	if proto.Unmarshal(b, &want) == nil && plain(b) {
		require.NoError(t, err)
		require.Equal(t, want.ResourceNames, text(r.Names))
	}
	if err == nil {
		try(ledger.New(ledger.Sotw, ledger.WholeRoutes, names.NewPool(), someStates()), &r)
	}
}

// plain reports whether all fields have their own wire types. Decoders keep other fields as
// unknown; the scanner ignores wire types.
func plain(b []byte) bool {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return false
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 || typ != protowire.BytesType {
			return false
		}
		b = b[n+m:]
	}
	return true
}

func text(list [][]byte) (out []string) {
	for _, b := range list {
		out = append(out, string(b))
	}
	return out
}

func someStates() []*table.State {
	t := table.New("t")
	t.Commit(1, append(routeConfig("80"), edsCluster("a", ""), endpoints("a", ""), listener("l1", ""), virtualHost("80/a", "a")))
	return []*table.State{t.State()}
}

// try handles a request twice and answers all responses.
func try(l *ledger.Ledger, r *request) {
	l.Handle(&r.Request)
	assemble(ledger.Delta, l.Next(nil), nil).release()
	l.Handle(&r.Request)
	l.Next(nil)
	_, _ = l.Settle()
	_ = l.Types()
}

func TestAssembledDeltaResponse(t *testing.T) {
	states := someStates()
	l := ledger.New(ledger.Delta, ledger.VirtualHosts, names.NewPool(), states)
	l.Handle(&ledger.Request{TypeURL: []byte(resource.ClusterURL), Subscribe: [][]byte{[]byte("*"), []byte("none")}})
	out := l.Next(nil)
	require.Len(t, out, 1)
	m := assemble(ledger.Delta, out, nil).messages[0]
	b := bytes.Join(m, nil)
	require.Len(t, b, sizeOf(m))
	var r discoveryv3.DeltaDiscoveryResponse
	require.NoError(t, proto.Unmarshal(b, &r))
	require.Equal(t, "1", r.SystemVersionInfo)
	require.Equal(t, "1", r.Nonce)
	require.Equal(t, []string{"a", "-none"}, listed(&r))
	require.Equal(t, states[0].Get(resource.Cluster, "a").Version, r.Resources[0].Version)
	require.Equal(t, resource.ClusterURL, r.Resources[0].Resource.TypeUrl)
	require.Equal(t, model.Revision(1), out[0].Newest)
}

// manyServices is the request of a proxy with 20,000 services that connects again, for one type.
func manyServices(t resource.Type) *discoveryv3.DeltaDiscoveryRequest {
	r := &discoveryv3.DeltaDiscoveryRequest{TypeUrl: t.URL(), InitialResourceVersions: map[string]string{}}
	for i := range 20_000 {
		name := fmt.Sprintf("outbound|8080|version-1|some-service-with-a-name-%d.namespace-of-it.svc.cluster.local", i)
		r.InitialResourceVersions[name] = "0123456789abcdef"
		if t == resource.Endpoints {
			r.ResourceNamesSubscribe = append(r.ResourceNamesSubscribe, name)
		}
	}
	return r
}

// TestLargeRequests: the first requests of a proxy in a large mesh are accepted with a certificate
// of the mesh, one type after the other. Without a certificate they are refused when they begin,
// and small requests are handled as usual.
func TestLargeRequests(t *testing.T) {
	certificate, pool := pair(t)
	h := newHarness(t, TransportHTTP2, Options{})
	port := Port{
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven, MinVersion: tls.VersionTLS12},
		Authorize: func(_ context.Context, peer *Peer, _ *model.Proxy) error {
			if len(peer.Certificates) == 0 {
				return Unauthenticated("a certificate is required")
			}
			return nil
		},
	}
	node := &corev3.Node{Id: nodeID}
	open := func(conn *grpc.ClientConn, first *discoveryv3.DeltaDiscoveryRequest) grpc.BidiStreamingClient[discoveryv3.DeltaDiscoveryRequest, discoveryv3.DeltaDiscoveryResponse] {
		st, err := discoveryv3.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(await.Context(t))
		require.NoError(t, err)
		first.Node = node
		require.NoError(t, st.Send(first))
		return st
	}
	h.commit(edsCluster("a", "1"), endpoints("a", "1"))
	client := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	stranger := h.serveAt(TransportHTTP2, port, client)
	for want, first := range map[codes.Code]*discoveryv3.DeltaDiscoveryRequest{
		codes.ResourceExhausted: manyServices(resource.Cluster),
		codes.Unauthenticated:   {TypeUrl: resource.Cluster.URL()},
	} {
		_, err := open(stranger, first).Recv()
		require.Equal(t, want, status.Code(err), "%v", err)
	}

	client = client.Clone()
	client.Certificates = []tls.Certificate{certificate}
	st := open(h.serveAt(TransportHTTP2, port, client), manyServices(resource.Cluster))
	require.Greater(t, proto.Size(manyServices(resource.Endpoints)), 3<<20)
	second := manyServices(resource.Endpoints)
	second.ResourceNamesSubscribe = append(second.ResourceNamesSubscribe, "a")
	require.NoError(t, st.Send(second))
	for range 2 {
		r, err := st.Recv()
		require.NoError(t, err)
		require.Len(t, r.Resources, 1)
	}
}
