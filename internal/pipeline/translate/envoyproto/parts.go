package envoyproto

import (
	"fmt"
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dfpcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/moonsail/moonsail/internal/model"
)

// UnixPath returns the path of a Unix socket; "": the address is none.
func UnixPath(address string) string {
	if path := strings.TrimPrefix(address, "unix://"); model.IsSocket(path) {
		return path
	}
	return ""
}

// Address is a Unix socket, or an address with a port.
func Address(address string, port uint32) *corev3.Address {
	if path := UnixPath(address); path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: SocketAddress(address, port)}}
}

// SocketAddress is an address with a port.
func SocketAddress(address string, port uint32) *corev3.SocketAddress {
	return &corev3.SocketAddress{
		Address:       address,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}
}

// InlineString is data in a message, as text.
func InlineString(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}

// InlineBytes is data in a message, as bytes.
func InlineBytes(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}

// Filename is data in a file of the proxy.
func Filename(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

// MatchExact matches one text.
func MatchExact(value string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}
}

// OverwriteHeader sets a header and replaces the value that the request has.
func OverwriteHeader(header, format string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: header, Value: format},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

// istioMetadata is the metadata key that Istio's telemetry and tools read.
const istioMetadata = "istio"

// IstioMetadata returns nil if there are no fields.
func IstioMetadata(fields map[string]*structpb.Value) *corev3.Metadata {
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{istioMetadata: {Fields: fields}}}
}

// StatDelimiter ends names in statistics, as in Istio. Names contain dots, and the tags in the bootstrap must
// find the end of a name.
const StatDelimiter = ";"

// dnsCaches are those of dynamic forward proxies, by the families of the proxy's addresses. All dynamic forward proxies
// of an Envoy share one, as the HTTP filter of a listener has one cache for all routes. With a cache for each host, each
// host would need a filter, and so change the listener. What uses a cache must configure it equally, also after an upgrade of the control plane: other settings need
// another name.
var dnsCaches = [...]*dfpcommonv3.DnsCacheConfig{
	model.IPv4:      dnsCache("moonsail", clusterv3.Cluster_V4_PREFERRED),
	model.IPv6:      dnsCache("moonsail-ipv6", clusterv3.Cluster_AUTO),
	model.DualStack: dnsCache("moonsail-dual-stack", clusterv3.Cluster_ALL),
}

// maxDNSNames is how many names a cache keeps, each for 5 minutes after its last use. Envoy refuses requests to further ones.
const maxDNSNames = 8192

func dnsCache(name string, f clusterv3.Cluster_DnsLookupFamily) *dfpcommonv3.DnsCacheConfig {
	return &dfpcommonv3.DnsCacheConfig{
		Name: fmt.Sprintf("%s-%d", name, maxDNSNames), DnsLookupFamily: f, MaxHosts: wrapperspb.UInt32(maxDNSNames),
	}
}

// DNSCache is the cache of a proxy's dynamic forward proxies.
func DNSCache(f model.Families) *dfpcommonv3.DnsCacheConfig { return dnsCaches[f] }

// PreserveCase sends names of HTTP/1.1 headers as they were received.
var PreserveCase = &corev3.Http1ProtocolOptions{HeaderKeyFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat{
	HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{StatefulFormatter: &corev3.TypedExtensionConfig{
		Name: "preserve_case", TypedConfig: MustPack(&preservecasev3.PreserveCaseFormatterConfig{}),
	}},
}}
