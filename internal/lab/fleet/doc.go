// Package fleet simulates sidecars: thousands of delta ADS clients in one process, each with a TCP connection. They
// subscribe and answer as Envoy does.
//
// A proxy subscribes to clusters; to the endpoints of clusters that need them; then to listeners, to scopes if a
// listener uses some, to the route configurations that these name, and to virtual hosts if a route configuration uses
// VHDS. It ACKs each response at once. On a new stream it lists the versions that it has.
//
// The fleet runs on the same machine as the server under measurement, so it uses little CPU time. A loop for each CPU
// waits for all streams in plain text (package poll), reads with one call and answers with one, without allocations and
// without a gRPC library (x/net's HTTP/2 framer handles frames other than DATA). Each received resource is parsed once
// in the fleet's Catalog, and a proxy stores a number for each resource. With TLS, and on systems without loops, each
// proxy has a goroutine that does the same.
package fleet
