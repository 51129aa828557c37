package chaos

import (
	"slices"
	"strings"
)

// States of objects. Those of others are "v1" (a route), "deny:c1" and "allow:c1" (an AuthorizationPolicy), "v1,v2"
// (endpoints), and "a" or "b" (the address of a ServiceEntry).
const (
	none       = "none" // the object does not exist
	split      = "split"
	abort      = "abort"
	invalid    = "invalid" // a route that the control plane refuses
	strict     = "strict"
	permissive = "permissive"
	// unacceptable objects make a virtual host that Envoy refuses. No request depends on them.
	unacceptable = "unacceptable"
	brief        = "brief" // objects of a burst that are deleted at once
)

// Answers of requests, besides the version of the instance that has answered.
const (
	denied     = "denied"      // by a policy
	aborted    = "aborted"     // by a route's fault
	unrouted   = "no upstream" // the route, its cluster or its endpoints do not exist
	badRoute   = "bad route"   // the route is invalid
	refused    = "refused"     // plain text, by the server's sidecar
	failed     = "failed"      // anything else
	misrouted  = "misrouted"   // another service has answered
	abortCode  = 418
	plainCall  = "plain"
	protoHTTP1 = "HTTP/1.1"
	protoHTTP2 = "HTTP/2"
	protoGRPC  = "gRPC"
	protoTCP   = "TCP"
)

// call is what a request asks for.
type call struct {
	Client, Service string // client is empty for plain text, which comes from outside of the mesh
	Proto           string
}

// opens reports whether each call opens a connection, which thus never is older than the call.
func (c call) opens() bool { return c.Proto == protoTCP || c.Proto == plainCall }

// world has one state for each object that a call depends on.
type world struct{ route, auth, mtls, endpoints, entry string }

// dimension is an object that calls depend on.
type dimension struct {
	object string
	// inbound is set if the object changes the server's listener, where connections that exist keep the state that they
	// began with until they are drained.
	inbound bool
	set     func(*world, string)
}

// dependsOn returns the objects that decide a call.
func (c call) dependsOn() []dimension {
	if strings.HasPrefix(c.Service, "e") {
		return []dimension{{"entry/" + c.Service, false, func(w *world, s string) { w.entry = s }}}
	}
	auth := dimension{"auth/" + c.Service, true, func(w *world, s string) { w.auth = s }}
	mtls := dimension{"mtls/" + serviceOf(c.Service), true, func(w *world, s string) { w.mtls = s }}
	if c.Proto == plainCall {
		auth.object = "auth/" + serviceOf(c.Service)
		return []dimension{auth, mtls}
	}
	out := []dimension{auth, mtls, {"endpoints/" + c.Service, false, func(w *world, s string) { w.endpoints = s }}}
	if c.Proto != protoTCP {
		out = append(out, dimension{"route/" + c.Service, false, func(w *world, s string) { w.route = s }})
	}
	return out
}

// serviceOf returns the service of an instance: "s1" of "s1-v2".
func serviceOf(instance string) string {
	service, _, _ := strings.Cut(instance, "-")
	return service
}

// answers returns what a call may answer in a world.
func (c call) answers(w world) []string {
	switch {
	case strings.HasPrefix(c.Service, "e"):
		if w.entry == none {
			return []string{unrouted}
		}
		return []string{w.entry}
	case c.Proto == plainCall:
		return c.plainAnswers(w)
	case c.Proto == protoTCP:
		return c.admitted(w, strings.Split(w.endpoints, ","))
	}
	return c.routedAnswers(w)
}

// plainAnswers are those of a client without a certificate, at one instance.
func (c call) plainAnswers(w world) []string {
	switch {
	case w.mtls == strict:
		return []string{refused}
	case strings.HasPrefix(w.auth, "allow:"):
		return []string{denied}
	}
	_, version, _ := strings.Cut(c.Service, "-")
	return []string{version}
}

func (c call) routedAnswers(w world) []string {
	endpoints := strings.Split(w.endpoints, ",")
	switch w.route {
	case abort:
		return []string{aborted}
	case none:
		return c.admitted(w, endpoints)
	case invalid: // of which the control plane may know no valid version after a restart
		return append(c.admitted(w, endpoints), badRoute, unrouted)
	case split:
		return c.admitted(w, subsets(endpoints, versions))
	}
	return c.admitted(w, subsets(endpoints, []string{w.route}))
}

// subsets returns the versions that a route to these subsets reaches.
func subsets(endpoints, routed []string) (out []string) {
	for _, v := range routed {
		if !slices.Contains(endpoints, v) {
			v = unrouted
		}
		out = append(out, v)
	}
	return out
}

// admitted replaces the versions that a call reaches by the policy's answer, if that denies it.
func (c call) admitted(w world, reached []string) (out []string) {
	how, who, _ := strings.Cut(w.auth, ":")
	denies := how == "deny" && who == c.Client || how == "allow" && who != c.Client
	for _, v := range reached {
		if denies && v != unrouted {
			v = denied
		}
		out = append(out, v)
	}
	return out
}
