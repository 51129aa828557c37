package telemetry

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	setfilterstatecommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setfilterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// A server's statistics name the calling workload, but its certificate has only namespace and service account. So the
// caller's sidecar sends the workload in a header. The server's sidecar reads it from callers with a certificate,
// keeps it for statistics, and removes it before the application. The agent compares it with the certificate when
// the server is scraped.
const peerState = "moonsail.workload"

// keepPeer copies the header into filter state, where statistics find it after its removal. The limit of 400 bytes fits 4
// names of Kubernetes and 2 labels.
var keepPeer = envoyproto.MustHTTPFilter("envoy.filters.http.set_filter_state", &setfilterstatev3.Config{
	OnRequestHeaders: []*setfilterstatecommonv3.FilterStateValue{{
		Key:        &setfilterstatecommonv3.FilterStateValue_ObjectKey{ObjectKey: peerState},
		FactoryKey: "envoy.string",
		Value: &setfilterstatecommonv3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: envoyproto.InlineString("%REQ(" + callstats.PeerHeader + "):400%")},
		}},
		SkipIfEmpty: true,
	}},
})

// SetPeerHeader replaces the header in outgoing requests. The listener sets it, not each virtual host: Envoy parses the
// format again for all virtual hosts whenever one of them changes, which takes a fifth of the time of that change.
var SetPeerHeader = envoyproto.OverwriteHeader(callstats.PeerHeader, "%ENVIRONMENT("+callstats.EnvWorkload+"):400%")

// PeerFilters precede all others, so that refused requests are counted too.
func PeerFilters(v *ir.HTTPChain) []*hcmv3.HttpFilter {
	if peerOf(v) == "" {
		return nil
	}
	return []*hcmv3.HttpFilter{keepPeer}
}

// peerOf is the format by which statistics read the caller; empty: callers of this chain cannot be trusted.
func peerOf(v *ir.HTTPChain) string {
	if !v.PeerTold || v.Telemetry == nil || len(v.Telemetry.Metrics) == 0 {
		return ""
	}
	return peerFormat
}
