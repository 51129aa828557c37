// Package gateway derives what gateways listen for, and where their routes lead: Istio's Gateways and those of the Gateway
// API with the routes that are bound to them. It is pure. Package model decides whether a route attaches to a server, and
// whether two servers conflict (attachment.go).
//
//	plan.go         the listeners and route configurations of a group's Gateways; start reading at MakePlan
//	isolation.go    which of several listeners a request is for
//	listener.go     a listener of the plan
//	virtualhost.go  a virtual host of the plan, from all routes that attach
package gateway
