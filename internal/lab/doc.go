// Package lab measures Moonsail: the experiments of moonsail-lab, and what they are made of.
//
//	cli          the commands of moonsail-lab
//	experiment   what experiments share: interleaved rounds, samples, comparisons, time budget, report
//	propagation  what a change takes from event to ACK, and costs, beside a baseline that computes nothing
//	throughput, balance, filters, concurrency, choices, routes
//	             the other experiments; each package has its scenario, measurement and report
//	fleet        thousands of simulated proxies
//	meshfiles, meshkube
//	             a mesh of any size as YAML files or on an API server, and its changes
//	load, openloop, pair, bench, child, threads, poll, plot
//	             load, real sidecars, processes and pictures
//
// Nothing outside of the lab imports it, and only it may use a load generator's library. To add a scenario,
// write a package like choices on experiment, and its command in cli.
package lab
