// Package meshtest runs end-to-end tests of the translation: YAML as users write it goes through every stage, and the
// tests check the results of calls.
//
// A test is a txtar file. Its comment describes the test; its parts are
//
//	input.yaml, input-*.yaml   objects, in any order; names order objects with the same creation
//	                           time, as in a cluster
//	input-cluster.yaml         the same, as from an API server that reports all Pods: EndpointSlices
//	                           list no Pod that is missing or still unknown
//	proxy.yaml                 the proxy that calls or is called, or a list of them; a router
//	                           (type: router) is called at its address
//	mesh.yaml                  differences from the default mesh configuration
//	dns.yaml                   addresses of names that are not services
//	calls.yaml                 a list of {name, proxy, call, want}
//	check.yaml                 the findings of simulate.World.Check; none without this part
//	problems.yaml              the errors of decoding; none without this part
//	want/clusters.yaml         the proxy's complete resources (listeners, routes, clusters,
//	                           endpoints); "go test -update" writes it.
//	                           want/NAME/clusters.yaml if there are several proxies
//
// A call is a URL, or a map with `url` and the fields of simulate.Call. The scheme of the URL is the protocol (http,
// http2, grpc, tcp, tls, https). Its host is resolved as an application would. simulate.Result.Mismatches compares a want.
//
// Package simulate evaluates each call, and package live makes it on a real Envoy. Both must agree. Only the simulator
// covers faults that hit some requests or delay them.
//
// The folders of examples/ are tests, too: their YAML is the input, expect.txtar has the other parts, and the Pods of
// their Deployments are the proxies. See LoadExample.
package meshtest
