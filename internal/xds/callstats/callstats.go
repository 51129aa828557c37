// Package callstats declares how Envoys count calls. The control plane configures the statistics
// (pipeline/translate/telemetry), and agents convert them to Istio's standard metrics (sidecar/agent/istiometrics).
//
// Each label costs Envoy time with each call. So one label has all parts that differ between calls, and agents add what
// is the same for all calls of a workload.
package callstats

import "strings"

const (
	// CallTag is the label with the text of a Call.
	CallTag = "__call"
	// RemovedTag is the label that lists the standard labels to leave out, separated by commas.
	RemovedTag = "__removed"
	// ConnectionTag is the label with the id of an open connection. It is the last label.
	ConnectionTag = "__cx"
	// LiveSuffix replaces "_total" in names of metrics of open connections.
	LiveSuffix = "_live"
	// MaxSeries bounds the combinations of labels that Envoy keeps for each reporter. A histogram takes some kilobytes.
	MaxSeries = 2000
)

// PeerHeader is the header by which a sidecar sends its workload to the server's sidecar, as Workload.Text. The server's
// sidecar reads it from callers with a certificate, and removes it before the application.
const PeerHeader = "x-moonsail-workload"

// Variables of Envoy's environment in which agents describe the workload.
const (
	EnvWorkload          = "MOONSAIL_WORKLOAD" // Workload.Text
	EnvCanonicalService  = "MOONSAIL_CANONICAL_SERVICE"
	EnvCanonicalRevision = "MOONSAIL_CANONICAL_REVISION"
	EnvClusterID         = "MOONSAIL_CLUSTER_ID"
	EnvMeshID            = "MOONSAIL_MESH_ID"
	EnvNamespace         = "MOONSAIL_NAMESPACE"
)

// The values of Call.Reporter.
const (
	Source      = "source"
	Destination = "destination"
)

// Separator separates the parts of a Call in its text.
const Separator = "|"

const (
	callParts = 9
	noValue   = "-" // Envoy's text for an empty value
)

// Call is what differs between calls of a workload. The control plane writes Envoy's format strings into the fields.
type Call struct {
	Reporter      string // Source or Destination
	Protocol      string // "http", "grpc" or "tcp"
	Code          string // HTTP status
	GRPC          string // gRPC status
	Flags         string // Envoy's response flags; "-": none
	Service       string // a ServiceText
	Principal     string // SPIFFE id of the workload itself
	PeerPrincipal string // SPIFFE id of the peer
	Peer          string // Workload.Text of the peer
}

// Text returns the value of CallTag.
func (c *Call) Text() string {
	return strings.Join([]string{
		c.Reporter, c.Protocol, c.Code, c.GRPC, c.Flags, c.Service, c.Principal, c.PeerPrincipal, c.Peer,
	}, Separator)
}

// ParseCall parses what Text returns. Values that Envoy does not know are empty.
func ParseCall(text string) (c Call, ok bool) {
	p := strings.SplitN(text, Separator, callParts)
	if len(p) != callParts {
		return Call{}, false
	}
	flags := p[4]
	for i := range p {
		if p[i] == noValue {
			p[i] = ""
		}
	}
	return Call{p[0], p[1], p[2], p[3], flags, p[5], p[6], p[7], p[8]}, true
}
