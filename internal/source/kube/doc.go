// Package kube is the source of a Kubernetes cluster: it lists and watches an API server.
//
// How the parts fit: client.go reaches the API server; kinds.go says what is asked for, and
// discovery.go which of it the API server has; reflect.go runs one of client-go's
// Reflectors a kind, which keeps a sink up to date; entry.go decodes each object once, sink.go finds
// out whether that is news, and feeds the intake; written.go and heartbeat.go measure how late it all is.
//
// Invariants:
//   - No Kubernetes object outlives its decoding: a sink holds resource versions and the
//     model's objects, which the store holds too.
//   - Nothing that was in force goes out of force because of a mistake, or because the API
//     server is away: an object with errors leaves its last good state there. Where there is
//     none (after a restart none is known), what is good of policies counts: istio.Partial.
//   - A list replaces: what it does not have is gone. So after an outage nothing stale stays.
//   - Nobody is served before all kinds have been listed once.
package kube
