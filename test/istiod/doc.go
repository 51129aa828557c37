// Package istiod compares Moonsail with istiod, Istio's control plane: both read the objects of each case from one API
// server, and each proxy of the case gets its configuration from both. Package compare decides calls on both
// configurations. What they decide differently must be listed in differences.yaml, with the reason.
//
//	cases.go      reads cases: the corpus of test/meshtest, the examples, testdata, and YAML of modules
//	planes.go     runs both control planes
//	apply.go      writes a case's objects, and removes them
//	secrets.go    the Secrets that a case lacks
//	node.go       the node of Istio's agent, and the proxy that is compared
//	compare.go    decides the calls on both sides
//	list.go       the listed differences
//	report.go     the report of a run
//
// `make compare-istiod` runs it. Two more tests run real Envoys: `make interop-istiod` those of both control planes in one
// mesh, and `make istioctl-test` commands of istioctl against Moonsail. Without istiod and istioctl, which take minutes to
// build, these tests are skipped.
package istiod
