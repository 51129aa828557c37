package sds

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// failureCounter returns Istio's counter, which may already be registered for the workload's own certificate.
func failureCounter(r prometheus.Registerer) (prometheus.Counter, error) {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "istio_agent_num_file_secret_failures_total",
		Help: "Number of times secret generation failed for files"})
	err := r.Register(c)
	var there prometheus.AlreadyRegisteredError
	if errors.As(err, &there) {
		if old, ok := there.ExistingCollector.(prometheus.Counter); ok {
			return old, nil
		}
	}
	return c, err
}

var (
	expiryDesc = prometheus.NewDesc("istio_agent_cert_expiry_seconds",
		"The time remaining, in seconds, before the certificate chain will expire. A negative value indicates the cert is expired.",
		[]string{"resource_name"}, nil)
	failingDesc = prometheus.NewDesc("moonsail_agent_file_secrets_failing",
		"Secrets in files that Envoy uses and whose files are missing or invalid.", nil, nil)
)

// fileCollector collects the metrics of secrets in files. It describes none in advance, because the secrets change.
type fileCollector struct{ files *Files }

// Describe implements prometheus.Collector.
func (c fileCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c fileCollector) Collect(out chan<- prometheus.Metric) {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	failing := 0
	for name, s := range c.files.wanted {
		if s.problem != "" {
			failing++
		}
		if !s.expires.IsZero() {
			out <- prometheus.MustNewConstMetric(expiryDesc, prometheus.GaugeValue, time.Until(s.expires).Seconds(), name)
		}
	}
	out <- prometheus.MustNewConstMetric(failingDesc, prometheus.GaugeValue, float64(failing))
}
