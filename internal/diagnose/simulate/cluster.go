package simulate

import (
	"fmt"
	"slices"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"
	httpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	// Names of the transport sockets that clusters may have.
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/raw_buffer/v3"
)

// share is a cluster with its weight among others.
type share struct {
	name     string
	weight   uint32
	weighted *routev3.WeightedCluster_ClusterWeight // nil for a single cluster
}

// unknownCluster is the discovery type of a cluster that does not exist.
const unknownCluster = "unknown cluster"

// Unknown reports whether the proxy does not have the cluster.
func (u *Upstream) Unknown() bool { return u.Discovery == unknownCluster }

// forward fills Upstreams, in the order of the shares.
func (w *World) forward(shares []share, r *request, res *Result) error {
	total := 0.0
	for _, s := range shares {
		total += float64(s.weight)
	}
	for _, s := range shares {
		u := Upstream{Cluster: s.name, Percent: percent(float64(s.weight), total)}
		c := w.cluster(s.name)
		if c == nil {
			u.Discovery = unknownCluster
		} else if err := w.fill(&u, c, r); err != nil {
			return fmt.Errorf("cluster %s: %w", s.name, err)
		}
		res.Upstreams = append(res.Upstreams, u)
	}
	res.summarise()
	return nil
}

// reachesAny reports whether some share of the calls finds an endpoint.
func (r *Result) reachesAny() bool {
	for _, share := range r.Endpoints {
		if share > 0 {
			return true
		}
	}
	return false
}

func (w *World) fill(u *Upstream, c *clusterv3.Cluster, r *request) error {
	u.Origin, u.TLSOrigin, u.Service = origin(c.GetMetadata()), originIn(c.GetMetadata(), tlsField), serviceHost(c)
	u.Discovery, u.LB = discovery(c), c.GetLbPolicy().String()
	u.Connect = duration(c.GetConnectTimeout())
	u.Source = c.GetUpstreamBindConfig().GetSourceAddress().GetAddress()
	u.Limits, u.Outlier = limits(c), outlier(c.GetOutlierDetection())
	if err := w.place(u, c, r); err != nil {
		return err
	}
	if err := protocolOf(u, c); err != nil {
		return err
	}
	if err := secure(u, c); err != nil {
		return err
	}
	switch {
	case u.TLS == nil:
	case r.offers != nil:
		u.TLS.ALPN = r.offers
	case r.meshALPN && overridesALPN(c):
		u.TLS.ALPN = meshALPN[u.Protocol == "http2" || u.Protocol == "downstream" && (r.Protocol == HTTP2 || r.Protocol == GRPC)]
	}
	return nil
}

// discovery returns the cluster's type, or the name of its custom type. DNS clusters of the newer kind have
// the names of the types that they replace.
func discovery(c *clusterv3.Cluster) string {
	t := c.GetClusterType()
	if t == nil {
		return c.GetType().String()
	}
	d := &dnsv3.DnsCluster{}
	if t.GetTypedConfig().UnmarshalTo(d) != nil {
		return t.GetName()
	}
	if d.GetAllAddressesInSingleEndpoint() {
		return clusterv3.Cluster_LOGICAL_DNS.String()
	}
	return clusterv3.Cluster_STRICT_DNS.String()
}

func duration(d *durationpb.Duration) string {
	if d == nil {
		return ""
	}
	return d.AsDuration().String()
}

// limits returns those of the default priority. Envoy's "unlimited" is left out as well.
func limits(c *clusterv3.Cluster) *Limits {
	l := Limits{}
	said := func(v interface{ GetValue() uint32 }) uint32 {
		if n := v.GetValue(); n != 1<<32-1 {
			return n
		}
		return 0
	}
	for _, t := range c.GetCircuitBreakers().GetThresholds() {
		if t.GetPriority() != corev3.RoutingPriority_DEFAULT {
			continue
		}
		l.Connections, l.Pending = said(t.GetMaxConnections()), said(t.GetMaxPendingRequests())
		l.Requests, l.Retries = said(t.GetMaxRequests()), said(t.GetMaxRetries())
	}
	l.RequestsPerConnection = c.GetMaxRequestsPerConnection().GetValue()
	if o, _ := httpOptions(c); o != nil {
		if n := o.GetCommonHttpProtocolOptions().GetMaxRequestsPerConnection().GetValue(); n != 0 {
			l.RequestsPerConnection = n
		}
	}
	if l == (Limits{}) {
		return nil
	}
	return &l
}

func outlier(o *clusterv3.OutlierDetection) *Outlier {
	if o == nil {
		return nil
	}
	out := &Outlier{Interval: duration(o.GetInterval()), Ejection: duration(o.GetBaseEjectionTime())}
	if v := o.GetConsecutive_5Xx(); v != nil {
		n := v.GetValue()
		out.Consecutive5xx = &n
	}
	if v := o.GetConsecutiveGatewayFailure(); v != nil {
		n := v.GetValue()
		out.ConsecutiveGateway = &n
	}
	if v := o.GetMaxEjectionPercent(); v != nil {
		n := v.GetValue()
		out.MaxPercent = &n
	}
	return out
}

const httpOptionsName = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"

func httpOptions(c *clusterv3.Cluster) (*httpv3.HttpProtocolOptions, error) {
	packed := c.GetTypedExtensionProtocolOptions()[httpOptionsName]
	if packed == nil {
		return nil, nil
	}
	o := &httpv3.HttpProtocolOptions{}
	return o, packed.UnmarshalTo(o)
}

// protocolOf returns the HTTP version to the cluster. The default is HTTP/1.1.
func protocolOf(u *Upstream, c *clusterv3.Cluster) error {
	o, err := httpOptions(c)
	if err != nil {
		return err
	}
	u.Protocol = "http1"
	switch p := o.GetUpstreamProtocolOptions().(type) {
	case *httpv3.HttpProtocolOptions_ExplicitHttpConfig_:
		if p.ExplicitHttpConfig.GetHttp2ProtocolOptions() != nil {
			u.Protocol = "http2"
		}
	case *httpv3.HttpProtocolOptions_UseDownstreamProtocolConfig:
		u.Protocol = "downstream"
	case *httpv3.HttpProtocolOptions_AutoConfig:
		u.Protocol = "auto"
	}
	if o == nil && c.GetHttp2ProtocolOptions() != nil {
		u.Protocol = "http2"
	}
	return nil
}

// secure reads the cluster's transport socket, or the ones that it has by metadata of endpoints.
func secure(u *Upstream, c *clusterv3.Cluster) error {
	if len(c.GetTransportSocketMatches()) > 0 {
		return secureMatches(u, c)
	}
	t, err := clientTLS(c.GetTransportSocket().GetTypedConfig(), c)
	u.TLS = t
	return err
}

// autoSNI stands for the SNI that Envoy takes from the authority, after rewrites.
const autoSNI = "auto"

// clientTLS returns nil for a transport socket without TLS.
func clientTLS(packed *anypb.Any, c *clusterv3.Cluster) (*ClientTLS, error) {
	if packed == nil {
		return nil, nil
	}
	msg, err := packed.UnmarshalNew()
	if err != nil {
		return nil, err
	}
	t, ok := msg.(*tlsv3.UpstreamTlsContext)
	if !ok {
		return nil, nil
	}
	out := &ClientTLS{SNI: t.GetSni(), ALPN: t.GetCommonTlsContext().GetAlpnProtocols()}
	if o, _ := httpOptions(c); out.SNI == "" && o.GetUpstreamHttpProtocolOptions().GetAutoSni() {
		out.SNI = autoSNI
	}
	out.fill(t.GetCommonTlsContext())
	return out, nil
}

func (t *ClientTLS) fill(c *tlsv3.CommonTlsContext) {
	v := c.GetValidationContext()
	if combined := c.GetCombinedValidationContext(); combined != nil {
		v = combined.GetDefaultValidationContext()
		t.CA = combined.GetValidationContextSdsSecretConfig().GetName()
	}
	if s := c.GetValidationContextSdsSecretConfig(); s != nil {
		t.CA = s.GetName()
	}
	if f := v.GetTrustedCa().GetFilename(); f != "" {
		t.CA = f
	}
	for _, m := range v.GetMatchTypedSubjectAltNames() {
		t.SANs = append(t.SANs, m.GetMatcher().GetExact()+m.GetMatcher().GetPrefix())
	}
	for _, m := range v.GetMatchSubjectAltNames() { // of any type; istiod writes these
		t.SANs = append(t.SANs, m.GetExact()+m.GetPrefix())
	}
	slices.Sort(t.SANs)
	t.SANs = slices.Compact(t.SANs)
	for _, s := range c.GetTlsCertificateSdsSecretConfigs() {
		t.Cert = s.GetName()
	}
	for _, s := range c.GetTlsCertificates() {
		t.Cert = s.GetCertificateChain().GetFilename()
	}
}
