package ir

import "github.com/moonsail/moonsail/internal/model"

// Names is what the DNS proxies of sidecars answer for one host.
type Names struct {
	Made

	Host      model.Host
	Addresses []string
	// Of Kubernetes Services: their shorter names.
	Service, Namespace string
}
