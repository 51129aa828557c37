// Package lab measures Moonsail: the experiments of moonsail-lab, and their building blocks.
//
// # Words
//
// These words have one meaning in all packages, flags and reports of the lab.
//
//   - An experiment is one command of moonsail-lab with its report: propagation, routes, throughput, balance, filters,
//     concurrency, choices, scale, chaos.
//   - A scenario is one situation that the experiment propagation measures: a kind of change (endpoint, route) or an
//     event (storm, reconnect-storm). Other experiments have no scenarios.
//   - A variant is one of the configurations that an experiment compares, for example "both sidecars, mTLS". The
//     scenarios airbnb and expedia compare variants too; there a variant is a setting of the control plane.
//   - A round measures every variant once. A sample is the numbers of one measurement.
//   - The subject is the program under measurement. The baseline is a server that computes nothing, or the variant
//     that others are compared with.
//   - A target is a limit that a report checks: met or missed.
//
// # Packages
//
// Start reading at propagation.Run.
//
//	cli          the commands of moonsail-lab, a file for each experiment
//	experiment   runs variants in interleaved rounds, compares them, and writes the report
//	propagation  time and cost of changes from event to ACK
//	throughput, balance, filters, concurrency, choices, routes, scale
//	             the other experiments, a package each
//	chaos        faults on purpose: it measures nothing, and checks every request
//
// Building blocks:
//
//	baseline     the server that computes nothing
//	fleet        thousands of simulated proxies
//	meshfiles, meshkube
//	             a mesh of any size as YAML files or in an API server, and its changes
//	pair, bench, load, openloop
//	             real sidecars, and load through them
//	child, threads, poll, plot
//	             processes, their threads, sockets, pictures
//
// # To add a scenario
//
// Write a function in a new file of package propagation, like stalled.go, and a row in Scenarios (scenarios.go). The
// row has all facts about the scenario: its meshes, about how long it takes, whether it restarts the control plane, and
// the titles of its plots. Elsewhere only help texts, tests and "moonsail-lab all" name scenarios. A scenario that
// restarts Deployments of an API server belongs to propagation/rollout, like expedia.go.
//
// # To add an experiment
//
// Write a package like choices, which returns an experiment.Experiment, and its command in cli. For "moonsail-lab all",
// add a row to allExperiments (cli/all.go).
//
// Only cmd/moonsail-lab imports the lab, and only the lab uses the library of a load generator.
//
// Layer 10 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package lab
