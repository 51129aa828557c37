// Package traffic measures the calls between workloads for the graph of the dashboard: rate, errors, durations and
// the share with mutual TLS.
//
// The numbers come from the metrics of connected proxies (proxies.go), or from Prometheus (prometheus.go). Meter
// (meter.go) measures only while somebody reads its results, in one goroutine with bounded requests and memory. It
// shares no lock with the pipeline.
package traffic
