package envoyproto

import (
	"strings"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	mutationv3 "github.com/envoyproxy/go-control-plane/envoy/config/common/mutation_rules/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	dfpcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/dynamic_forward_proxy/v3"
	preservecasev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/http/header_formatters/preserve_case/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

func InlineString(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineString{InlineString: text}}
}

// UnixPath gives the path of a Unix socket, "" for other addresses.
func UnixPath(address string) string {
	path := strings.TrimPrefix(address, "unix://")
	if strings.HasPrefix(path, "/") || strings.HasPrefix(path, "@") {
		return path
	}
	return ""
}

func Address(address string, port uint32) *corev3.Address {
	if path := UnixPath(address); path != "" {
		return &corev3.Address{Address: &corev3.Address_Pipe{Pipe: &corev3.Pipe{Path: path}}}
	}
	return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: SocketAddress(address, port)}}
}

func SocketAddress(address string, port uint32) *corev3.SocketAddress {
	return &corev3.SocketAddress{
		Address:       address,
		PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
	}
}

// StatDelimiter ends names in statistics, as in Istio: names have dots in them, and the
// bootstrap's tags must know where they end.
const StatDelimiter = ";"

// DNSCache is shared by all dynamic forward proxies of an Envoy: the filters that fill it
// and the clusters that read it must have the same configuration of it.
var DNSCache = &dfpcommonv3.DnsCacheConfig{
	Name:            "moonsail",
	DnsLookupFamily: clusterv3.Cluster_V4_PREFERRED,
}

// OverwriteHeader sets a header, whatever was said under its name.
func OverwriteHeader(header, format string) *mutationv3.HeaderMutation {
	return &mutationv3.HeaderMutation{Action: &mutationv3.HeaderMutation_Append{Append: &corev3.HeaderValueOption{
		Header:       &corev3.HeaderValue{Key: header, Value: format},
		AppendAction: corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD,
	}}}
}

func Filename(path string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_Filename{Filename: path}}
}

func MatchExact(value string) *matcherv3.StringMatcher {
	return &matcherv3.StringMatcher{MatchPattern: &matcherv3.StringMatcher_Exact{Exact: value}}
}

// istioMetadata is the key under which Istio's telemetry and tools look.
const istioMetadata = "istio"

// IstioMetadata is nil where there are no fields.
func IstioMetadata(fields map[string]*structpb.Value) *corev3.Metadata {
	if len(fields) == 0 {
		return nil
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{istioMetadata: {Fields: fields}}}
}

// ConfigPath is how Istio names an object in metadata: its path at the API server.
// Origin is "namespace/name".
func ConfigPath(kebabKind, origin string) *structpb.Value {
	namespace, name, _ := strings.Cut(origin, "/")
	return structpb.NewStringValue("/apis/networking.istio.io/v1/namespaces/" + namespace + "/" + kebabKind + "/" + name)
}

// PreserveCase has names of headers go on as they came. Envoy changes none of what it does not add itself.
var PreserveCase = &corev3.Http1ProtocolOptions{HeaderKeyFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat{
	HeaderFormat: &corev3.Http1ProtocolOptions_HeaderKeyFormat_StatefulFormatter{StatefulFormatter: &corev3.TypedExtensionConfig{
		Name: "preserve_case", TypedConfig: MustPack(&preservecasev3.PreserveCaseFormatterConfig{}),
	}},
}}

func InlineBytes(text string) *corev3.DataSource {
	return &corev3.DataSource{Specifier: &corev3.DataSource_InlineBytes{InlineBytes: []byte(text)}}
}
