// Package modelcheck checks the pipeline as a whole against a small model: random events go through the real intake,
// engine, tables, ledgers and xDS server to simulated Envoys, which connect, stall, refuse resources, reconnect and
// change their protocol, while control planes restart.
//
// The model (truth_test.go) and the Envoys (envoy_test.go) share no code with what they check. A run is a list of
// operations (op_test.go) that a seed repeats. Each has random numbers of its own, so the operations that
// remain when a failing run is shortened (shrink_test.go) do what they did before. A run lives in a bubble of testing/synctest:
// time is simulated, and "nothing happens any more" is a fact instead of a timeout, so a lost wakeup is found at once.
//
// The invariants are in checks_test.go. Defects that are planted on purpose (package defect, tag "defects") show that each
// check works: defects_test.go.
//
//	go test ./test/modelcheck                                                    the short form
//	MODELCHECK_EVENTS=1000000 MODELCHECK_BURSTS=10 go test ./test/modelcheck -run Pipeline -timeout 6h -v    the long form
//	MODELCHECK_SEED=17 go test ./test/modelcheck -run Pipeline -v                       one seed
//	go test -tags defects ./test/modelcheck -run Defects                            with planted defects
package modelcheck
