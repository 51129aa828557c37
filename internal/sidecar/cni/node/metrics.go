package node

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/moonsail/moonsail/internal/sidecar/cni/install"
)

// metrics are the agent's. A metric with a name of istio-cni has the same meaning.
type metrics struct {
	registry *prometheus.Registry

	installs *prometheus.CounterVec
	ready    prometheus.Gauge
	pods     *prometheus.CounterVec
	repairs  *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		installs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_cni_installs_total",
			Help: "Total number of checks whether the CNI plugin is installed, by result."}, []string{"result"}),
		ready: prometheus.NewGauge(prometheus.GaugeOpts{Name: "istio_cni_install_ready",
			Help: "Whether the CNI plugin installation is ready or not."}),
		pods: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "moonsail_cni_pods_total",
			Help: "Pods that the CNI plugin asked about: redirected, passed because they need no rules, or failed and tried again."}, []string{"result"}),
		repairs: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "istio_cni_repair_pods_repaired_total",
			Help: "Total number of pods repaired by repair controller."}, []string{"type", "result"}),
	}
	m.registry.MustRegister(m.installs, m.ready, m.pods, m.repairs,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// installed records a check of the installation.
func (m *metrics) installed(err error) {
	result, ready := "SUCCESS", 1.0
	switch {
	case errors.Is(err, install.ErrProgram):
		result, ready = "COPY_BINARIES_FAILURE", 0
	case err != nil:
		result, ready = "CREATE_CNI_CONFIG_FAILURE", 0
	}
	m.installs.WithLabelValues(result).Inc()
	m.ready.Set(ready)
}
