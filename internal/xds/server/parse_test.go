package server

import (
	"bytes"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
	"github.com/moonsail/moonsail/internal/xds/names"
	"github.com/moonsail/moonsail/internal/xds/resource"
	"github.com/moonsail/moonsail/internal/xds/table"
)

// FuzzParseRequest compares the scanner with protobuf's decoder, and passes what it accepts to a
// ledger.
func FuzzParseRequest(f *testing.F) {
	for _, r := range []*discoveryv3.DeltaDiscoveryRequest{
		{},
		{TypeUrl: resource.ClusterURL, Node: &corev3.Node{Id: nodeID}},
		{TypeUrl: resource.EndpointsURL, ResourceNamesSubscribe: []string{"a", "b", "*"}, ResourceNamesUnsubscribe: []string{"a"}},
		{TypeUrl: resource.VirtualHostURL, InitialResourceVersions: map[string]string{"80/a": "1", "80/b": ""}},
		{TypeUrl: resource.ListenerURL, ResponseNonce: "1", ErrorDetail: &status.Status{Code: 3, Message: "l1 is bad"}},
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
	if proto.Unmarshal(b, &want) == nil && plain(b) {
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
	assemble(ledger.Delta, l.Next(nil)).release()
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
	m := assemble(ledger.Delta, out).messages[0]
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
