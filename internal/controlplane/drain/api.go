// Package drain deregisters workloads without losing a request. A sidecar that is about to end
// calls agentapi.DeregisterMethod. Its endpoints get no new calls, and the call is answered as
// soon as every proxy that had them has ACKed their removal.
//
//	agent ──Deregister──► Registry ──DrainNotice──► intake ──► pipeline ──► every proxy
//	  ▲                       │  waits for the ACKs of its own proxies, and asks all peers,
//	  └──────response─────────┘  who wait for theirs
//
// Start reading at deregister.go. acks.go waits for proxies, notices.go keeps the drain notices, forward.go
// asks the other control planes about their proxies, and peers.go exchanges notices after a start.
//
// On a port in plain text a caller is believed, as on the discovery service's streams.
package drain

import (
	"encoding/json"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/agentapi"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Bounds.
const (
	// MaxWait bounds the time to an answer. It is shorter than the time after which networks
	// drop a silent connection.
	MaxWait = 20 * time.Second
	// DefaultReconnectGrace is how long a disconnected proxy is waited for, from the end of its
	// stream. After a start of the control plane it applies to all proxies.
	DefaultReconnectGrace = 5 * time.Second
	// maxAge ends a notice whose endpoints some source still lists.
	maxAge = time.Hour
	// minAge keeps a notice for a while, so that the disconnected proxy of a drained workload is
	// known to have ended in order.
	minAge = 30 * time.Second
	// maxNotices bounds the notices at one time.
	maxNotices = 1 << 16
	// maxNoticesOfNamespace bounds those of one namespace, so that no tenant uses up all.
	maxNoticesOfNamespace = maxNotices / 4
	// maxAddresses bounds the addresses of one workload.
	maxAddresses = 16
	// maxListedProxies bounds the proxies that a response lists.
	maxListedProxies = 16
	// sweepInterval is how often the registry looks for notices that have ended.
	sweepInterval = 5 * time.Second
)

func decode(b []byte) (*agentapi.DeregisterRequest, *model.Proxy, error) {
	q := &agentapi.DeregisterRequest{}
	if err := json.Unmarshal(b, q); err != nil {
		return nil, nil, server.Invalid("%s: %v", agentapi.DeregisterMethod, err)
	}
	p, err := proxyOf(q)
	return q, p, err
}

// proxyOf returns the proxy that a request is about.
func proxyOf(q *agentapi.DeregisterRequest) (*model.Proxy, error) {
	p, err := server.ParseID(q.Node)
	if err != nil {
		return nil, err
	}
	p.Instance, p.ServiceAccount = q.Instance, q.ServiceAccount
	for _, a := range q.Addresses {
		if !model.IsIP(a) {
			return nil, server.Invalid("%s: address %q of %s: not an IP address", agentapi.DeregisterMethod, a, p)
		}
		if len(p.IPs) < maxAddresses && a != p.IPs[0] {
			p.IPs = append(p.IPs, a)
		}
	}
	return p, nil
}

// waitOf bounds the time to the answer of a request.
func waitOf(q *agentapi.DeregisterRequest) time.Duration {
	if d := time.Duration(q.WaitMillis) * time.Millisecond; d > 0 && d < MaxWait {
		return d
	}
	return MaxWait
}
