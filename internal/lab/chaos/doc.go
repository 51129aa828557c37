// Package chaos runs a mesh of real Envoys, applications and control planes under a seeded plan of changes and faults, and
// checks everything that happens against a small model.
//
// Nothing here uses the pipeline: what a request may answer is computed in model.go from the states of a few objects, and
// from when each of them was written and ACKed (history.go).
//
// # Where to start
//
//	plan.go      the plan: which change or fault happens when. A pure function of the seed
//	model.go     what a request may answer, by the state of objects
//	history.go   which states a request may have met, and which parts were disturbed by a fault
//	run.go       a run: start, plan, end, checks
//	faults.go    what each fault does
//	roots.go     the rotation of the mesh's root
//	traffic.go   requests, and what their answers mean
//	acks.go      waits until all proxies have ACKed a change, and checks that it is true
//	final.go     what is compared after the last fault
//	report.go    report.json and report.html
//	shrink.go    repeats a run with fewer actions
//
// Goroutines: Run's own executes the plan. The others are one for each fault that lasts, for each kind of requests of a
// client, for the ACKs, and for each connection of a relay. All end before Run returns.
package chaos
