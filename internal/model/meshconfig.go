package model

import (
	"slices"
	"time"
)

// MeshConfig is what a cluster says of its mesh: differences from what the control plane
// was started with. nil and empty: nothing is said.
type MeshConfig struct {
	Meta
	Outbound       *OutboundMode
	LocalInbound   *bool
	OutboundPort   *uint32
	InboundPort    *uint32
	AccessLogFile  *string
	ConnectTimeout *time.Duration
	DefaultRetry   *Retry
	Telemetry      *MeshTelemetry
	TrustDomain    *string
	// TrustDomainAliases are believed beside the trust domain.
	TrustDomainAliases []string
	AutoMTLS           *bool
	OnlyTLS13          *bool
	CipherSuites       []string
	TLSDefaults        *TLSDefaults
	MeshHTTP2          *H2Upgrade
	Paths              *PathNormalization
	Topology           *Topology
	Headers            *ProxyHeaders
	Locality           *LocalityLB
	Baseline           *TrafficPolicy
	Keepalive          *TCPKeepalive
	DNSRefresh         *time.Duration
	DetectionTimeout   *time.Duration
	// Authorizers are asked by policies of action AuthorizeCustom, by name.
	Authorizers map[string]*ExternalAuthorizer
	// ExportTo are the defaults of objects that say nothing, by their kind, as written.
	// Service counts for ServiceEntries too.
	ExportTo map[Kind][]string
	// ProxyDefaults is its defaultConfig, as JSON: what ProxyConfigs are laid over.
	ProxyDefaults string
	// Discovery selects the namespaces that belong to the mesh, any of them; empty: all.
	Discovery []LabelSelector
}

// Over lays the differences over a mesh, which stays as it is. A nil MeshConfig has none.
func (c *MeshConfig) Over(base *Mesh) *Mesh {
	if c == nil {
		return base
	}
	m := *base
	set(&m.Outbound, c.Outbound)
	set(&m.LocalInbound, c.LocalInbound)
	set(&m.OutboundPort, c.OutboundPort)
	set(&m.InboundPort, c.InboundPort)
	set(&m.AccessLogFile, c.AccessLogFile)
	set(&m.ConnectTimeout, c.ConnectTimeout)
	set(&m.TrustDomain, c.TrustDomain)
	set(&m.Telemetry, c.Telemetry)
	set(&m.AutoMTLS, c.AutoMTLS)
	set(&m.OnlyTLS13, c.OnlyTLS13)
	set(&m.MeshHTTP2, c.MeshHTTP2)
	set(&m.Paths, c.Paths)
	set(&m.Topology, c.Topology)
	set(&m.Headers, c.Headers)
	m.TrustDomainAliases, m.CipherSuites, m.TLSDefaults = c.TrustDomainAliases, c.CipherSuites, c.TLSDefaults
	m.Authorizers = c.Authorizers
	set(&m.Locality, given(c.Locality))
	set(&m.Baseline, c.Baseline)
	set(&m.Keepalive, given(c.Keepalive))
	set(&m.DNSRefresh, c.DNSRefresh)
	set(&m.DetectionTimeout, given(c.DetectionTimeout))
	if c.DefaultRetry != nil {
		retryOn := m.DefaultRetry.RetryOn
		if m.DefaultRetry = *c.DefaultRetry; m.DefaultRetry.RetryOn == "" {
			m.DefaultRetry.RetryOn = retryOn
		}
	}
	return &m
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// given is nil where there is nothing to point to.
func given[T any](p *T) **T {
	if p == nil {
		return nil
	}
	return &p
}

// LabelSelector selects by labels, as in Kubernetes: all parts must hold.
type LabelSelector struct {
	Labels      map[string]string
	Expressions []LabelExpression
}

// LabelExpression compares one label.
type LabelExpression struct {
	Key      string
	Operator LabelOperator
	Values   []string // of LabelIn and LabelNotIn
}

// LabelOperator is how a label is compared.
type LabelOperator string

// The operators. LabelNotIn and LabelDoesNotExist hold where the label is not there.
const (
	LabelIn           LabelOperator = "In"
	LabelNotIn        LabelOperator = "NotIn"
	LabelExists       LabelOperator = "Exists"
	LabelDoesNotExist LabelOperator = "DoesNotExist"
)

// Matches tells whether labels are selected. A selector without parts selects everything.
func (s *LabelSelector) Matches(labels map[string]string) bool {
	if !SelectorMatches(s.Labels, labels) {
		return false
	}
	for _, e := range s.Expressions {
		if !e.matches(labels) {
			return false
		}
	}
	return true
}

func (e *LabelExpression) matches(labels map[string]string) bool {
	v, ok := labels[e.Key]
	switch e.Operator {
	case LabelIn:
		return ok && slices.Contains(e.Values, v)
	case LabelNotIn:
		return !ok || !slices.Contains(e.Values, v)
	case LabelExists:
		return ok
	}
	return !ok
}
