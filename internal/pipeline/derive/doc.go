// Package derive applies Istio's rules: it computes, for each group of proxies, the configuration that the group receives,
// as values of package ir. Translate only writes these values in Envoy's types.
//
// It is incremental. A unit is the smallest piece that is computed separately: one host of one group, its endpoints, one
// listener. A unit gets its input from a Reader of package index, which records each fact that the unit asks for. A change
// of objects changes facts, and only the units that asked for these are computed again. A property test checks that the
// result equals a computation from scratch.
//
// The packages are pure: no clock, no I/O. One goroutine drives a Deriver. It derives groups in parallel.
//
// Start reading at Deriver.Apply, then proxyGroup.derive.
package derive
