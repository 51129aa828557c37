package debug

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
)

// Proxy is a connected proxy on the pages and in `moonsail proxies`.
type Proxy struct {
	ID        string       `json:"id"` // Envoy's node id
	Name      string       `json:"name"`
	Namespace string       `json:"namespace"`
	Connected time.Time    `json:"connected"`
	Protocol  string       `json:"protocol"` // "delta" or "sotw"
	Strategy  string       `json:"strategy"` // how its routes reach it: "rds" or "vhds"
	Types     []ProxyTypes `json:"types"`    // in the order in which they are sent
}

// ProxyTypes is a proxy's state for one type of resource.
type ProxyTypes struct {
	Type          string         `json:"type"` // "CDS"
	Subscribed    int            `json:"subscribed"`
	Wildcard      bool           `json:"wildcard,omitempty"`
	Version       string         `json:"version,omitempty"` // of what was sent last
	SentRevision  model.Revision `json:"sentRevision"`
	AckedRevision model.Revision `json:"ackedRevision"`
	InFlightSince time.Time      `json:"inFlightSince,omitzero"` // when the unanswered response was sent
	Held          []Held         `json:"held,omitempty"`         // what the proxy refused
}

// Held is a resource that a proxy refused; it is not sent again until it differs.
type Held struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Message string `json:"message"` // Envoy's own
}
