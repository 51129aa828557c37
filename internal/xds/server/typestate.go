package server

import (
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// TypeState is the state of one type of resources on a stream.
type TypeState struct {
	Type          string         `json:"type"` // "CDS"
	Wildcard      bool           `json:"wildcard"`
	Subscribed    int            `json:"subscribed"` // named resources
	Sent          model.Revision `json:"sent"`
	ACKed         model.Revision `json:"acked"`
	InFlightSince time.Time      `json:"inFlightSince,omitzero"`
	Waiting       string         `json:"waiting,omitempty"` // what it waits for, if something is to be sent and must wait
	Version       string         `json:"version,omitempty"` // state-of-the-world: version of the last response
	Held          []Held         `json:"held,omitempty"`
	// Lacks is how many resources of the proxy's tables have changed since it disconnected, as far as connected proxies use
	// these tables.
	Lacks int `json:"lacks,omitempty"`
}

// InUse reports whether the proxy has subscribed to anything of the type.
func (t *TypeState) InUse() bool {
	return t.Wildcard || t.Subscribed > 0 || t.Sent > 0 || len(t.Held) > 0
}

// Held is a resource that a proxy refused. It is not sent again until it differs.
type Held struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Message string `json:"message"` // of the proxy
	// Since is when the proxy refused this version first.
	Since time.Time `json:"since,omitzero"`
	// By is what the resource is refused for, if this was asked for; zero: unknown.
	By distribution.Blame `json:"by,omitzero"`
}

// ProxyStatus is the worst state of all types of a proxy.
type ProxyStatus string

// The statuses of proxies.
const (
	ProxySynced  ProxyStatus = "SYNCED" // it has settled everything that was published
	ProxyBehind  ProxyStatus = "BEHIND" // it has not settled a revision
	ProxyRefuses ProxyStatus = "NACKED" // it has refused resources, which are held back
	// ProxyDisconnected: its stream has ended, and it has not connected again.
	ProxyDisconnected ProxyStatus = "DISCONNECTED"
)

// ProxyStatuses are all statuses, the best first.
var ProxyStatuses = []ProxyStatus{ProxySynced, ProxyBehind, ProxyRefuses, ProxyDisconnected}

// Judge returns the proxy's status. A proxy that refuses resources may be behind, too.
func (p *ProxyState) Judge() ProxyStatus {
	switch {
	case p.IsDisconnected():
		return ProxyDisconnected
	case p.Refused() > 0:
		return ProxyRefuses
	case p.Behind():
		return ProxyBehind
	}
	return ProxySynced
}

// IsDisconnected reports whether the state is that of a proxy that has disconnected.
func (p *ProxyState) IsDisconnected() bool { return !p.DisconnectedSince.IsZero() }

// Refused returns the number of resources that are held back, as the proxy has refused them.
func (p *ProxyState) Refused() int {
	n := 0
	for i := range p.Types {
		n += len(p.Types[i].Held)
	}
	return n
}

// Behind reports whether the proxy has not settled a revision.
func (p *ProxyState) Behind() bool { return p.Pending > 0 }

// TypeProgress is how far a proxy is with one type of resources. A greater one is worse.
type TypeProgress uint8

// The progress of a type.
const (
	TypeNotInUse TypeProgress = iota // the proxy subscribes to nothing
	TypeSynced                       // everything is ACKed
	TypeNotSent                      // nothing was sent yet, and nothing is to be sent
	TypeWaiting                      // something is to be sent, and waits for another type
	TypeInFlight                     // a response is not answered
	TypeRefused                      // a resource is held back
	TypeLacks                        // a resource has changed since the proxy disconnected
)

// Progress returns how far the proxy is. Of several resources the worst one counts.
func (t *TypeState) Progress() TypeProgress {
	switch {
	case t.Lacks > 0:
		return TypeLacks
	case len(t.Held) > 0:
		return TypeRefused
	case !t.InFlightSince.IsZero():
		return TypeInFlight
	case t.Waiting != "":
		return TypeWaiting
	case !t.InUse():
		return TypeNotInUse
	case t.Sent == 0:
		return TypeNotSent
	}
	return TypeSynced
}
