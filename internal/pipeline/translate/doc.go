// Package translate makes Envoy's resources out of IR values (internal/pipeline/ir). Its packages are pure:
// equal IR values give equal messages in a deterministic encoding, and nothing but the IR is read.
//
//	cluster     CDS and EDS: clusters and their endpoints
//	listener    LDS and ECDS: listeners, filter chains, HTTP and TCP filters, Wasm plugins
//	route       RDS, VHDS and SRDS: virtual hosts, route configurations, scopes
//	security    TLS contexts and Secrets, RBAC, JWT and external authorization filters
//	telemetry   access logs, statistics and tracing of listeners
//	envoyproto  what these packages share: packing, durations, addresses, metadata
//
// listener imports route, security and telemetry; route imports security and telemetry; cluster imports
// security. Start reading at cluster.Translate, listener.Translate and route.VirtualHost.
//
// Translation follows Istio's semantics: names of filters, metadata, defaults of connection pools, timeouts
// and retries. It generates the smallest resource with that meaning.
//
// Invariants:
//
//  1. Every message has passed the validation rules of Envoy's API, and Envoy's further checks of regular
//     expressions, formats and filter chain matches. Envoy refuses a whole response for one invalid resource.
//  2. Messages may share parts with each other. Callers must not change them.
//  3. Bytes are deterministic: the hash of the bytes is the version of the resource.
//
// The tests of this package translate the files in testdata, and let Envoy validate the result.
package translate
