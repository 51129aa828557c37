// Package config turns users' configuration into objects of the model, and reports what is wrong with it.
//
// It is pure: no I/O, no clock, no goroutines. Its packages import the standard library, the API types of
// Kubernetes, Istio and the Gateway API, and the rooms below (security, xds, model).
//
// Decoding one document has three steps. An error in one step stops the next:
//
//  1. schema: every field exists in the kind and has its type. Unknown fields are errors, because a
//     misspelt field would be lost silently.
//  2. typed object: the Go type of k8s.io/api, istio.io/client-go or sigs.k8s.io/gateway-api.
//  3. model object: one function per kind, which validates as it converts. Objects of an API server start
//     at step 2, because the server has checked their schema.
//
// An object with errors is not used. Of security policies and routes, the parts without errors are used as long as no
// good version of the object is known (package salvage).
//
// Packages, in reading order:
//
//	config       Decoder: finds the kind of a document and runs the three steps; kinds.go is the table of kinds
//	problem      a problem: severity, object, field, message; paths of fields
//	code         codes of the kinds of problems, with the texts of docs/reference/messages.md
//	schema       step 1: YAML documents against Go types and protobuf messages
//	convert      step 3: what converters of all kinds share, such as host names, ports, labels
//	istio        step 3: Istio's kinds and MeshConfig
//	gatewayapi   step 3: kinds of the Gateway API, and the references that their statuses are about
//	kube         step 3: Service, EndpointSlice, Pod, Node, Namespace, Secret, ConfigMap with CAs
//	salvage      what is used of objects with errors
//	analyze      problems between objects, such as a route to a service that does not exist
//	envoyext     extensions of Envoy that patches and filters may name, and their messages
//	envoyformat  Envoy's format strings
//	cel          Envoy's expressions
//	goduration   durations of Go in the JSON of messages
//	proxyconfig  ProxyConfig of sidecars
//	spelling     suggestions for misspelt names
//	certfile     certificates and keys in PEM
//
// CONTRIBUTING.md lists what to change for a field of a DestinationRule or an AuthorizationPolicy, and for a message.
//
// Start reading at Decoder in decoder.go. What is valid follows Istio's pkg/config/validation.
//
// Layer 4 of ARCHITECTURE.md: this room imports only itself and rooms of lower layers.
package config
