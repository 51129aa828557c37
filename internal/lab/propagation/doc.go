// Package propagation measures how long changes take from a file to every proxy's ACK,
// and what they cost: moonsail-lab propagation. docs/experiments.md describes it.
//
// Scenarios (scenarios.go) lists what it measures; each scenario has a file: churn.go, storm.go, stalled.go,
// reconnect_storm.go, growth.go, memory.go, locks.go, single changes in scenarios.go, and Deployments that restart in
// package rollout. A scenario measures an open session (package session) and returns a results.Result. run.go runs
// the chosen scenarios.
//
// It writes a mesh as a directory of YAML, starts a control plane on it, connects simulated
// sidecars, and makes one change at a time. The baseline, a server that computes nothing
// (package baseline), is measured in the same run by the same clients: noise affects both,
// so that ratios are reliable.
package propagation
