package status

import (
	"reflect"
	"strings"
	"time"

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
	was, decided := t.deployments[k]
	if t.objects[k] == nil && d == nil {
		delete(t.deployments, k) // the Gateway is gone
	} else {
		t.deployments[k] = d
	}
	if !reflect.DeepEqual(was, d) || t.deciding && !decided {
		t.gatewayObject++
	}
}

// decideIn bounds how long the statuses of Gateways wait for SetDeployment.
const decideIn = 30 * time.Second

// awaitDeployments makes the status of each Gateway wait until SetDeployment was called for it, but not longer than decideIn.
// A status that is written before would deny what the last leader has deployed. The returned function ends the wait.
func (t *Tracker) awaitDeployments() (end func()) {
	t.setDeciding(true)
	timer := time.AfterFunc(decideIn, func() { t.setDeciding(false) })
	return func() {
		timer.Stop()
		t.setDeciding(false)
	}
}

func (t *Tracker) setDeciding(yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.deciding = yes
	t.gatewayObject++
}

// ClearDeployments forgets the states of all deployments.
func (t *Tracker) ClearDeployments() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.deployments)
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
