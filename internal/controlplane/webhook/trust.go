package webhook

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// trustWithin bounds how long a control plane is not ready because the API server has not been told to trust its
// webhooks: it serves proxies, too, which would go without.
const trustWithin = 30 * time.Second

// Trust knows of the configurations that this process is to write its certificate into whether it is there. Until then
// the API server cannot call this process, and refuses what it would ask it about. Nil: there are none.
type Trust struct {
	begun time.Time

	mu     sync.Mutex // guards what follows
	states map[string]*trusted
	names  []string // of the configurations, in order
}

// trusted is how it stands with one configuration.
type trusted struct {
	done bool  // it was there once
	err  error // of the last look; nil: there was none yet, or it is there
}

// newTrust is told of the configurations of some keepers.
func newTrust(begun time.Time, names ...string) *Trust {
	t := &Trust{begun: begun, states: map[string]*trusted{}}
	for _, n := range names {
		if n != "" {
			t.states[n] = &trusted{}
			t.names = append(t.names, n)
		}
	}
	return t
}

// NewTrust is that of the webhooks of a server; they are waited for from now on.
func NewTrust(o Options, now time.Time) *Trust {
	if o.CertFile != "" {
		return nil // whoever issued that puts its CA there
	}
	return newTrust(now, o.Config, o.InjectConfig)
}

// note takes what came of a look at a configuration.
func (t *Trust) note(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.states[name]; s != nil {
		s.done, s.err = s.done || err == nil, err
	}
}

// Waiting says which configurations do not have the certificate yet and may get it soon; nil: there are none.
// One that has had it, or is not there, or that this process may not write, is not waited for.
func (t *Trust) Waiting(now time.Time) error {
	if t == nil || now.Sub(t.begun) >= trustWithin {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var texts []string
	for _, n := range t.names {
		s := t.states[n]
		if s.done || outOfReach(s.err) {
			continue
		}
		text := "the certificate of this webhook is not in the webhook configuration " + n + " yet, so that the API server does not trust it"
		if s.err != nil {
			text += ": " + s.err.Error()
		}
		texts = append(texts, text)
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; ") + fmt.Sprintf(" (waiting for %s at most)", trustWithin))
}

// Problems are configurations that do not have the certificate and are not waited for.
func (t *Trust) Problems(now time.Time) []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, n := range t.names {
		s := t.states[n]
		switch {
		case s.err != nil && (s.done || outOfReach(s.err) || now.Sub(t.begun) >= trustWithin):
			out = append(out, fmt.Sprintf("the API server cannot be told to trust this webhook: %s: %v; %s", n, s.err, remedy(s.err)))
		case s.err == nil && !s.done && now.Sub(t.begun) >= trustWithin:
			out = append(out, fmt.Sprintf("the API server has not answered about the webhook configuration %s, so that it does not trust this webhook", n))
		}
	}
	return out
}

// Lacking is how many configurations do not have the certificate, as far as is known.
func (t *Trust) Lacking() int {
	if t == nil {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, s := range t.states {
		if !s.done || s.err != nil {
			n++
		}
	}
	return n
}

// outOfReach tells whether waiting does not help: somebody has to do something.
func outOfReach(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

func remedy(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "apply it (deploy/webhook.yaml and deploy/injector.yaml), or leave out the flag that names it"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return "give this control plane the rights of deploy/rbac.yaml, or a certificate by --webhook-cert"
	}
	return "it is tried again"
}
