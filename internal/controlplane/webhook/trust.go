package webhook

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moonsail/moonsail/internal/source/kube"
)

// trustWithin bounds how long a control plane is not ready because the API server does not trust its
// webhooks. It also serves proxies, which would have no configuration.
const trustWithin = 30 * time.Second

// Trust records for each webhook configuration whether it has this process's certificate. Until it has, the
// API server cannot call this process and rejects objects. A nil Trust has no configurations.
type Trust struct {
	begun time.Time

	mu     sync.Mutex // guards the fields below
	states map[string]*trusted
	names  []string // names of the configurations, in order
}

// trusted is the state of one configuration.
type trusted struct {
	done bool  // it had the certificate once
	err  error // of the last check; nil: not checked yet, or it has the certificate
}

// newTrust returns a Trust of webhook configurations, by name; an empty name is skipped.
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

// NewTrust returns a Trust of the webhooks of a server. Waiting starts now.
func NewTrust(o Options, now time.Time) *Trust {
	if o.CertFile != "" {
		return nil // the issuer of the files also sets the CA
	}
	return newTrust(now, o.Config, o.InjectConfig)
}

// note records the result of a check of a configuration.
func (t *Trust) note(name string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.states[name]; s != nil {
		s.done, s.err = s.done || err == nil, err
	}
}

// Waiting names the configurations that do not have the certificate yet and may get it soon; nil: none. It
// does not wait for a configuration that had it, does not exist, or cannot be written.
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
		text := "webhook configuration " + n + ": the certificate of this webhook is missing, so that the API server does not trust it"
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

// Problems names the configurations that do not have the certificate and are not waited for.
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
			out = append(out, fmt.Sprintf("webhook configuration %s: certificate not written: %v: %s", n, s.err, remedy(s.err)))
		case s.err == nil && !s.done && now.Sub(t.begun) >= trustWithin:
			out = append(out, fmt.Sprintf("webhook configuration %s: no answer from the API server, which does not trust this webhook yet", n))
		}
	}
	return out
}

// Lacking counts the configurations that do not have the certificate.
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

// outOfReach reports whether only a person can resolve an error.
func outOfReach(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err)
}

func remedy(err error) string {
	switch {
	case apierrors.IsNotFound(err):
		return "restore it with 'moonsail upgrade', 'helm upgrade' or 'moonsail manifest', or remove the flag that names it"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return kube.GrantRights + ", or set a certificate with --webhook-cert"
	}
	return "retrying"
}
