package telemetry

import (
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	setfilterstatecommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/common/set_filter_state/v3"
	setfilterstatev3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/set_filter_state/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"

	"github.com/moonsail/moonsail/internal/pipeline/ir"
	"github.com/moonsail/moonsail/internal/pipeline/translate/envoyproto"
)

// A server's statistics name the workload that calls, of which its certificate says namespace
// and service account only. The caller's sidecar tells it in a header. The server's takes it
// from callers with a certificate and no others, keeps it for its statistics, and removes it:
// the application does not see it. Who scrapes the server compares it with the certificate.
const (
	PeerHeader = "x-moonsail-workload"
	peerState  = "moonsail.workload"
	// PeerVariable is what the agent puts into Envoy's environment: its workload, in the form
	// of Istio's metadata of endpoints.
	PeerVariable = "MOONSAIL_WORKLOAD"
)

// keepPeer keeps the header where statistics find it when it has been removed. A workload's
// text is no longer than 4 names of Kubernetes and 2 labels.
var keepPeer = envoyproto.MustHTTPFilter("envoy.filters.http.set_filter_state", &setfilterstatev3.Config{
	OnRequestHeaders: []*setfilterstatecommonv3.FilterStateValue{{
		Key:        &setfilterstatecommonv3.FilterStateValue_ObjectKey{ObjectKey: peerState},
		FactoryKey: "envoy.string",
		Value: &setfilterstatecommonv3.FilterStateValue_FormatString{FormatString: &corev3.SubstitutionFormatString{
			Format: &corev3.SubstitutionFormatString_TextFormatSource{TextFormatSource: envoyproto.InlineString("%REQ(" + PeerHeader + "):400%")},
		}},
		SkipIfEmpty: true,
	}},
})

// SetPeerHeader says who calls, whatever the request says. The listener does, not each virtual host: Envoy reads the
// format anew for each of them whenever one of their table changes, a fifth of what such a change takes.
var SetPeerHeader = envoyproto.OverwriteHeader(PeerHeader, "%ENVIRONMENT("+PeerVariable+"):400%")

// PeerFilters come first: who is refused is counted, too.
func PeerFilters(v *ir.HTTPChain) []*hcmv3.HttpFilter {
	if peerOf(v) == "" {
		return nil
	}
	return []*hcmv3.HttpFilter{keepPeer}
}

// peerOf is where a chain's statistics find who calls; empty: nobody there can be believed.
func peerOf(v *ir.HTTPChain) string {
	if !v.PeerTold || v.Telemetry == nil || len(v.Telemetry.Metrics) == 0 {
		return ""
	}
	return peerFormat
}
