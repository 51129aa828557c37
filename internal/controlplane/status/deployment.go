package status

import (
	"maps"
	"reflect"

	"github.com/moonsail/moonsail/internal/model"
)

// Deployment is the state of the objects that the control plane creates for a Gateway of the Gateway API.
type Deployment struct {
	Name       string   // of the Deployment and the Service; empty: unknown, because of Failure
	Parameters string   // what is wrong with the Gateway's parameters; empty: nothing
	Conflicts  []string // objects of others with the names of the Gateway's, and what to do about them
	Failure    string   // why they could not be written; empty: they were
}

// Reasons of the condition Programmed for Gateways that the control plane deploys.
const (
	ReasonDeploymentConflict = "DeploymentConflict"
	ReasonDeploymentFailed   = "DeploymentFailed"
)

// SetDeployment sets the state of a Gateway's deployment; nil: it has none.
func (b *Board) SetDeployment(k model.Key, d *Deployment) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if reflect.DeepEqual(b.deployments[k], d) {
		return
	}
	next := maps.Clone(b.deployments) // the checker reads the old map
	if next == nil {
		next = map[model.Key]*Deployment{}
	}
	if next[k] = d; d == nil {
		delete(next, k)
	}
	b.deployments = next
	b.gatewayObject++
}

// ClearDeployments forgets the states of all deployments.
func (b *Board) ClearDeployments() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deployments = nil
	b.gatewayObject++
}

// troubled returns the condition Programmed of a deployed Gateway whose objects are not as they should be; false: they are.
func (d *Deployment) troubled() (condition, bool) {
	switch {
	case d == nil:
	case d.Failure != "":
		return condition{typeProgrammed, false, ReasonDeploymentFailed, shorten([]string{d.Failure})}, true
	case len(d.Conflicts) > 0:
		return condition{typeProgrammed, false, ReasonDeploymentConflict, shorten(d.Conflicts)}, true
	}
	return condition{}, false
}
