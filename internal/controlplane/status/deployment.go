package status

import (
	"maps"
	"reflect"
	"strings"

	"github.com/moonsail/moonsail/internal/model"
)

// Deployment is the state of the objects that the control plane creates for a Gateway of the Gateway API.
type Deployment struct {
	Name       string   // of the Deployment and the Service; empty: unknown, because of Failure
	Parameters string   // what is wrong with the Gateway's parameters; empty: nothing
	Conflicts  []string // objects of others with the names of the Gateway's, and what to do about them
	Failure    string   // why they could not be written; empty: they were
	Ignored    []string // labels and annotations that its Pods do not get
}

// Reasons of the condition Programmed for Gateways that the control plane deploys.
const (
	ReasonDeploymentConflict = "DeploymentConflict"
	ReasonDeploymentFailed   = "DeploymentFailed"
)

// SetDeployment sets the state of a Gateway's deployment; nil: it has none.
func (t *Tracker) SetDeployment(k model.Key, d *Deployment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if reflect.DeepEqual(t.deployments[k], d) {
		return
	}
	next := maps.Clone(t.deployments) // the checker reads the old map
	if next == nil {
		next = map[model.Key]*Deployment{}
	}
	if next[k] = d; d == nil {
		delete(next, k)
	}
	t.deployments = next
	t.gatewayObject++
}

// ClearDeployments forgets the states of all deployments.
func (t *Tracker) ClearDeployments() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deployments = nil
	t.gatewayObject++
}

// remark is the message of a Gateway that works.
func (d *Deployment) remark() string {
	if d == nil || len(d.Ignored) == 0 {
		return ""
	}
	return shorten([]string{"Gateways may not set on Pods: " + strings.Join(d.Ignored, ", ") + ": use a ConfigMap with parameters (spec.infrastructure.parametersRef)"})
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
