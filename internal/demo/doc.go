// Package demo runs a mesh on one machine and shows what it does: a small shop whose
// workloads are processes, each with a real Envoy sidecar and a loopback
// address, under steady traffic while routes, endpoints and the control
// plane change.
//
// The demo starts the same program that users run (serve, agent), and uses it as
// users do: by YAML files and debug pages. It needs neither root nor a cluster: Sidecar
// resources with captureMode NONE let applications call listeners of their sidecars.
//
// Start reading at Run in demo.go. It runs the steps in steps_*.go one after the other.
// mesh.go starts and stops processes, shop.go describes the shop, load.go and tally.go make
// and count requests, report.go prints. Nothing else imports this package, except the command line.
//
// Goroutines: Run's own; one that starts processes and lives
// as long as they do; one that waits for each process; the ticker and the workers of the load.
//
// Layer 9 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package demo
