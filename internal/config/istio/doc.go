// Package istio decodes Kubernetes and Istio objects into the mesh's own model,
// and says what is wrong with them.
//
// It is pure: no I/O, no clock, no goroutines. Decoding has three steps, each of
// which stops the next one where it finds an error:
//
//  1. shape: every field of the document is one that the kind has, and of its type;
//     unknown fields are errors, since a misspelt one would be lost silently;
//  2. typed object: k8s.io/api, istio.io/client-go;
//  3. model object: one function a kind, which validates as it converts. Sources
//     that already hold typed objects (informers) start here.
//
// What is valid follows Istio's pkg/config/validation; messages say what to do.
package istio
