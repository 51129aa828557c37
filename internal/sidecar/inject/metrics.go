package inject

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Annotations that Prometheus reads.
const (
	metricsScrape = "prometheus.io/scrape"
	metricsPort   = "prometheus.io/port"
	metricsPath   = "prometheus.io/path"
	// metricsTargets has several addresses, as ports and paths: "8080:/metrics,9090:/custom". It precedes the other port and path.
	metricsTargets = "prometheus.istio.io/scrape-targets"
)

// metrics is the application's metrics, which the agent merges with Envoy's.
type metrics struct {
	Scrape string `json:"scrape"`
	Path   string `json:"path"`
	Port   string `json:"port"`
	// Targets precede Port and Path.
	Targets []metricsTarget `json:"targets,omitempty"`
}

// maxTargets bounds the addresses of one Pod. The agent reads all of them at the same time.
const maxTargets = 16

type metricsTarget struct {
	Port string `json:"port"`
	Path string `json:"path"`
}

// targetsOf decodes the annotation metricsTargets.
func targetsOf(text string) ([]metricsTarget, error) {
	var out []metricsTarget
	for entry := range strings.SplitSeq(text, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		port, path, _ := strings.Cut(entry, ":")
		port = strings.TrimSpace(port)
		if _, err := parsePort(metricsTargets, port); err != nil {
			return nil, err
		}
		if len(out) == maxTargets {
			return nil, fmt.Errorf("annotation %s: more than %d addresses: list fewer", metricsTargets, maxTargets)
		}
		out = append(out, metricsTarget{port, cmp.Or(strings.TrimSpace(path), "/metrics")})
	}
	return out, nil
}

// moveMetrics makes Prometheus scrape the agent, and stores where the application's metrics are.
func (r *request) moveMetrics(pod *corev1.Pod, sidecar *corev1.Container) error {
	merge := r.MergeMetrics
	if v, ok := pod.Annotations[annotationMerge]; ok {
		var err error
		if merge, err = parseBool(annotationMerge, v); err != nil {
			return err
		}
	}
	m := metrics{Scrape: pod.Annotations[metricsScrape], Path: pod.Annotations[metricsPath], Port: pod.Annotations[metricsPort]}
	port := strconv.Itoa(r.statusPort)
	if scrape, err := strconv.ParseBool(m.Scrape); !merge || err == nil && !scrape || m.Port == port {
		return nil
	}
	var err error
	if m.Targets, err = targetsOf(pod.Annotations[metricsTargets]); err != nil {
		return err
	}
	if m.Port != "" {
		if _, err := parsePort(metricsPort, m.Port); err != nil {
			return err
		}
	}
	if m.Scrape+m.Path+m.Port != "" || len(m.Targets) > 0 {
		text, err := json.Marshal(m)
		if err != nil {
			return err
		}
		sidecar.Env = append(sidecar.Env, corev1.EnvVar{Name: envMetrics, Value: string(text)})
	}
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[metricsScrape], pod.Annotations[metricsPort], pod.Annotations[metricsPath] = "true", port, "/stats/prometheus"
	return nil
}

// restoreMetrics restores the annotations that moveMetrics changed.
func restoreMetrics(pod *corev1.Pod, sidecar *corev1.Container) error {
	var m metrics
	moved, err := fromEnv(sidecar, envMetrics, &m)
	if err != nil || !moved && pod.Annotations[metricsPath] != "/stats/prometheus" {
		return err
	}
	for name, value := range map[string]string{metricsScrape: m.Scrape, metricsPort: m.Port, metricsPath: m.Path} {
		if delete(pod.Annotations, name); value != "" {
			pod.Annotations[name] = value
		}
	}
	return nil
}
