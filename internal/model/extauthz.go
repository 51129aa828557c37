package model

import "time"

// ExternalAuthorizer is a service that decides about calls: a provider of MeshConfig that is
// of kind envoyExtAuthzHttp or envoyExtAuthzGrpc. Policies of action AuthorizeCustom name it.
type ExternalAuthorizer struct {
	Name      string
	Namespace string // of the service; empty: not said
	Host      Host
	Port      uint32
	Timeout   time.Duration
	// FailOpen lets calls pass that the service gives no answer to; else they are answered
	// with StatusOnError (0: 403).
	FailOpen      bool
	StatusOnError uint32
	// ClearRouteCache: routes are chosen again after the headers that it has changed.
	ClearRouteCache bool
	Body            *AuthorizerBody // nil: the body is not sent
	HTTP            *HTTPAuthorizer // nil: it speaks gRPC
}

// AuthorizerBody is how much of a request's body an authorizer gets.
type AuthorizerBody struct {
	MaxBytes uint32
	Partial  bool // longer ones are cut; else they are refused
	AsBytes  bool // not as UTF-8 text
}

// HTTPAuthorizer is how an authorizer is asked over HTTP. Headers are exact names, "prefix*"
// or "*suffix".
type HTTPAuthorizer struct {
	PathPrefix string
	// Sent are the headers of the request that it gets, Added those that are put in.
	Sent  []string
	Added map[string]string
	// ToUpstream are the headers of its consent that the workload gets; ToClientOnAllow and
	// ToClientOnDeny those that the client gets, with the consent and with its refusal.
	ToUpstream      []string
	ToClientOnAllow []string
	ToClientOnDeny  []string
}
