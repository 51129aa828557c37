// Package grafana tests dashboards for Grafana with Prometheus's own parser and engine: those of deploy/grafana, and
// the queries that Istio's dashboards make. It is a separate module, because Prometheus has many dependencies.
//
// Queries run over scrapes of real sidecars and a control plane, which test/e2e saves: "make grafana-test".
package grafana
