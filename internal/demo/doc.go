// Package demo runs a whole mesh on one machine and shows what it does: a small shop,
// each of its workloads a process with a real Envoy sidecar of its own on a loopback
// address of its own, under steady traffic while routes, endpoints and the control
// plane itself change.
//
// The demo starts the same program that users run (serve, agent) and talks to it as
// users do: by YAML files and by the debug pages. No root and no cluster: Sidecar
// resources with captureMode NONE let applications call their sidecar's listeners.
//
// Goroutines: the one of Run tells the story; one starts processes (and lives as long
// as they do); one waits for each process; load has a ticker and its workers.
package demo
