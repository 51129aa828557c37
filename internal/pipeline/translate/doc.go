// Package translate makes Envoy's resources out of views. It is pure: equal views give
// equal messages, in a deterministic encoding, and nothing but the view is read.
//
// It follows Istio's semantics (names of filters, metadata, defaults of connection pools,
// timeouts and retries), and generates as little as has the same meaning: Envoy builds a
// table anew for each change of it, and what is left out costs it nothing.
//
// Whatever comes out has passed the validation rules of Envoy's API, and the checks of
// regular expressions and the like that Envoy makes beyond them: a resource that Envoy
// refuses takes all others of its message with it.
//
// Messages may share parts with one another. Callers must not change them.
package translate
