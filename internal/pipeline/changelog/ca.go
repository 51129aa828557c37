package changelog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// CAMetrics are those of the certificate authority, by Istio's names.
type CAMetrics struct {
	requested       prometheus.Counter     // citadel_server_csr_count
	unauthenticated prometheus.Counter     // citadel_server_authentication_failure_count
	unreadable      prometheus.Counter     // citadel_server_csr_parsing_err_count
	unsigned        *prometheus.CounterVec // citadel_server_csr_sign_err_count
	issued          prometheus.Counter     // citadel_server_success_cert_issuance_count
}

// CertificateAuthority registers the metrics of the authority, where there is one. rootExpiry
// and chainExpiry tell when its first root, and what it signs with, expire.
func (m *Metrics) CertificateAuthority(rootExpiry, chainExpiry func() time.Time) *CAMetrics {
	unix := func(at func() time.Time) func() float64 { return func() float64 { return float64(at().Unix()) } }
	left := func(at func() time.Time) func() float64 { return func() float64 { return time.Until(at()).Seconds() } }
	m.Gauge("citadel_server_root_cert_expiry_timestamp", "The unix timestamp, in seconds, when the root cert will expire.", unix(rootExpiry))
	m.Gauge("citadel_server_root_cert_expiry_seconds",
		"The time remaining, in seconds, before the root cert will expire. A negative value indicates the cert is expired.", left(rootExpiry))
	m.Gauge("citadel_server_cert_chain_expiry_timestamp", "The unix timestamp, in seconds, when the signing cert chain will expire.", unix(chainExpiry))
	m.Gauge("citadel_server_cert_chain_expiry_seconds",
		"The time remaining, in seconds, before the signing cert chain will expire. A negative value indicates the cert is expired.", left(chainExpiry))
	return &CAMetrics{
		requested:       m.counter("citadel_server_csr_count", "The number of CSRs received."),
		unauthenticated: m.counter("citadel_server_authentication_failure_count", "The number of authentication failures."),
		unreadable:      m.counter("citadel_server_csr_parsing_err_count", "The number of CSRs that were refused for what is in them."),
		unsigned:        m.counterVec("citadel_server_csr_sign_err_count", "The number of errors occurred when signing the CSR.", "error"),
		issued:          m.counter("citadel_server_success_cert_issuance_count", "The number of certificates issuances that have succeeded."),
	}
}

// Requested counts a request for a certificate.
func (c *CAMetrics) Requested() { c.requested.Inc() }

// Unauthenticated counts one from nobody knows whom.
func (c *CAMetrics) Unauthenticated() { c.unauthenticated.Inc() }

// Unreadable counts one that is wrong in itself.
func (c *CAMetrics) Unreadable() { c.unreadable.Inc() }

// Unsigned counts one that could not be granted for a reason of ours.
func (c *CAMetrics) Unsigned(reason string) { c.unsigned.WithLabelValues(reason).Inc() }

// Issued counts a certificate.
func (c *CAMetrics) Issued() { c.issued.Inc() }
