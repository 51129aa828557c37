// Package drain lets workloads leave without a request being lost: a sidecar that is
// told to end says so, its endpoints get no more calls, and it is answered as soon as every
// proxy that had them has ACKed that.
//
// How the parts fit: api.go is what is asked and answered; keeper.go keeps who leaves, and
// leave.go waits for ACKs; pass.go asks the other control planes about their proxies, and
// learn.go what they know after a start.
//
// On a port in plain text who a call is from is believed, like the streams of the discovery
// service: whoever reaches that port is trusted.
package drain

import (
	"encoding/json"
	"time"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/server"
)

// Method is the gRPC method, beside the discovery service. It is unary; its messages are a
// Request and an Answer in JSON.
const Method = "/moonsail.v1.Workload/Leave"

// Request says who leaves.
type Request struct {
	Node string `json:"node"` // Envoy's node id
	// Instance is the proxy's, from its node's metadata: what leaves is this one, and not one
	// that came after it.
	Instance string `json:"instance,omitempty"`
	// Addresses of the workload, besides the node id's.
	Addresses []string `json:"addresses,omitempty"`
	// WaitMillis bounds the answer; 0: MaxWait.
	WaitMillis int64 `json:"waitMs,omitempty"`
	// Stay withdraws what was said: the workload goes on.
	Stay bool `json:"stay,omitempty"`
}

// Answer says who knows.
type Answer struct {
	Revision model.Revision `json:"revision"`
	ACKed    int            `json:"acked"` // proxies that had its endpoints, and know
	// Lacking are proxies that may call it still. It is safe to end where there are none.
	Lacking   []Lacking `json:"lacking,omitempty"`
	LackCount int       `json:"lackCount,omitempty"` // of which Lacking are the first
	// Disconnected counts the proxies that are not waited for: their streams have ended long
	// enough ago. Those that live still may call the workload until they are back.
	Disconnected int `json:"disconnected,omitempty"`
	// Peers counts the other control planes whose proxies are in these numbers. One that did
	// not answer is among Lacking.
	Peers int `json:"peers,omitempty"`
	// Pending: some that lack it may ACK soon.
	Pending bool `json:"pending,omitempty"`

	TookMillis float64 `json:"tookMs"`
}

// Lacking is a proxy that has not ACKed, and why.
type Lacking struct {
	Proxy    string           `json:"proxy"` // name.namespace
	Position server.SyncState `json:"position"`
	Reason   string           `json:"reason,omitempty"`
}

// Bounds.
const (
	// MaxWait is how long an answer is waited for where nothing else is said; it is less than
	// what keeps a silent connection.
	MaxWait = 20 * time.Second
	// DefaultAbsence is how long a proxy that was disconnected is waited for, from the end of
	// its stream on; and from the control plane's start on, all that may connect again.
	DefaultAbsence = 5 * time.Second
	// maxMark is how long a workload leaves for at most: endpoints that are listed after it
	// get calls again.
	maxMark = time.Hour
	// maxMarks bounds how many leave at the same time.
	maxMarks = 1 << 16
	// maxAddresses bounds those of one workload, and maxNamed the proxies of an Answer.
	maxAddresses = 16
	maxNamed     = 16
	// minMark is how long a mark stays at least: by it those who left in order are told from
	// those whom it is worth to wait for.
	minMark = 30 * time.Second
	// sweepEvery is how often it is looked what sources have removed themselves.
	sweepEvery = 5 * time.Second
)

func decode(b []byte) (*Request, *model.Proxy, error) {
	q := &Request{}
	if err := json.Unmarshal(b, q); err != nil {
		return nil, nil, server.Invalid("%s: %v", Method, err)
	}
	p, err := q.proxy()
	return q, p, err
}

// proxy is who leaves.
func (q *Request) proxy() (*model.Proxy, error) {
	p, err := server.ParseID(q.Node)
	if err != nil {
		return nil, err
	}
	p.Instance = q.Instance
	for _, a := range q.Addresses {
		if !model.IsIP(a) {
			return nil, server.Invalid("%s: address %q of %s is no IP address", Method, a, p)
		}
		if len(p.IPs) < maxAddresses && a != p.IPs[0] {
			p.IPs = append(p.IPs, a)
		}
	}
	return p, nil
}

// wait is how long the answer may take.
func (q *Request) wait() time.Duration {
	if d := time.Duration(q.WaitMillis) * time.Millisecond; d > 0 && d < MaxWait {
		return d
	}
	return MaxWait
}
