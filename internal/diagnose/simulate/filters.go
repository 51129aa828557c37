package simulate

import (
	"errors"
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	// Messages that configurations may hold in an Any.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/http_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/original_dst/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/listener/tls_inspector/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/set_filter_state/v3"
)

func unpack(a *anypb.Any) (proto.Message, error) {
	if a == nil {
		return nil, errors.New("has no typed_config")
	}
	return a.UnmarshalNew()
}

func messageName(m proto.Message) string {
	return string(m.ProtoReflect().Descriptor().FullName())
}

// runChain gives the connection to the terminal filter of its chain, unless one before it
// refuses it.
func (w *World) runChain(chain *listenerv3.FilterChain, r *request, res *Result) error {
	if r.isTLS() && chain.GetTransportSocket() == nil {
		// TLS is passed on as it is: nobody reads requests inside.
		r.Protocol = TLS
	}
	res.EndsTLS = r.isTLS() && chain.GetTransportSocket() != nil
	refused, err := handshake(chain, r)
	if refused != "" || err != nil {
		res.Closed = refused
		return err
	}
	filters := chain.GetFilters()
	r.offers = offered(filters)
	if len(filters) == 0 {
		res.Closed = "filter chain without filters"
		return nil
	}
	r.secured = res.EndsTLS
	last := filters[len(filters)-1]
	if refused, err := w.runNetworkFilters(filters[:len(filters)-1], r, res); refused || err != nil {
		return err
	}
	msg, err := unpack(last.GetTypedConfig())
	if err != nil {
		return fmt.Errorf("filter %s: %w", last.GetName(), err)
	}
	switch f := msg.(type) {
	case *hcmv3.HttpConnectionManager:
		return w.runHTTP(f, r, res)
	case *tcpv3.TcpProxy:
		return w.runTCP(f, r, res)
	default:
		return fmt.Errorf("filter %s (%s) is not known to the simulator", last.GetName(), messageName(msg))
	}
}

func (w *World) runTCP(f *tcpv3.TcpProxy, r *request, res *Result) error {
	for _, h := range f.GetHashPolicy() {
		if h.GetSourceIp() != nil {
			res.Hash = append(res.Hash, "sourceIP")
		}
	}
	var shares []share
	switch s := f.GetClusterSpecifier().(type) {
	case *tcpv3.TcpProxy_Cluster:
		shares = []share{{name: s.Cluster, weight: 1}}
	case *tcpv3.TcpProxy_WeightedClusters:
		for _, c := range s.WeightedClusters.GetClusters() {
			shares = append(shares, share{name: c.GetName(), weight: c.GetWeight()})
		}
	default:
		return errors.New("tcp_proxy names no cluster")
	}
	if err := w.forward(shares, r, res); err != nil {
		return err
	}
	if !res.reachesAny() {
		res.Closed = "no healthy upstream"
	}
	return nil
}
