// Package agent runs one sidecar: it writes Envoy's bootstrap, starts and supervises Envoy, answers readiness probes and
// metric scrapes, and drains Envoy before it ends. Start reading at Run.
//
// A flag of `moonsail agent` sets a field of Config. Config.resolve applies defaults and annotations and returns settings,
// which everything else reads.
package agent
