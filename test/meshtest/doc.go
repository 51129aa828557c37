// Package meshtest runs end-to-end tests of the translation: YAML as users write it goes
// through every stage, and the tests ask what becomes of calls.
//
// A test is a txtar file. Its comment says what it is about; its parts are
//
//	input.yaml, input-*.yaml   objects, in any order; objects with the same creation
//	                           time are told apart by name, as in a cluster
//	input-cluster.yaml         the same, as from an API server, which tells of all Pods: slices
//	                           name none that is not there, or not known yet
//	proxy.yaml                 the proxy that calls or is called, or a list of them; a router
//	                           (type: router) is called at its own address
//	mesh.yaml                  differences from the default mesh configuration
//	dns.yaml                   addresses of names that are not services
//	calls.yaml                 a list of {name, proxy, call, want}
//	check.yaml                 what simulate.World.Check finds; nothing where not there
//	problems.yaml              errors that decoding reports; nothing where not there
//	want/clusters.yaml         the proxy's resources, whole (listeners, routes, clusters,
//	                           endpoints); "go test -update" writes it.
//	                           want/NAME/clusters.yaml where there are several proxies
//
// A call is an URL, or a map with `url` and the fields of simulate.Call. The URL's scheme is
// the protocol (http, http2, grpc, tcp, tls, https), its host is resolved like an application
// would do it. A want is compared as simulate.Result.Mismatches says.
//
// Each call is evaluated by package simulate, and made on a real Envoy by package live, which
// must agree; faults that hit only some requests, or delay them, are left to the simulator.
//
// The folders of examples/ are tests, too: their YAML is the input, expect.txtar has the other parts, and the Pods of
// their Deployments are the proxies. See LoadExample.
package meshtest
