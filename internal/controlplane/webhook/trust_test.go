package webhook

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestTrust checks that what resolves itself is waited for, for a limited time, and that everything else is
// reported.
func TestTrust(t *testing.T) {
	begun := time.Unix(1000, 0)
	resource := schema.GroupResource{Group: "admissionregistration.k8s.io", Resource: "mutatingwebhookconfigurations"}
	forbidden, missing := apierrors.NewForbidden(resource, "injector", errors.New("no rights")), apierrors.NewNotFound(resource, "injector")
	soon, late := begun.Add(time.Second), begun.Add(trustWithin)
	for name, c := range map[string]struct {
		looks            []error
		now              time.Time
		waiting, problem string
		lacking          int
	}{
		"at the start":              {nil, soon, "injector: the certificate of this webhook is missing", "", 1},
		"no answer":                 {[]error{errors.New("connection refused")}, soon, "connection refused (waiting for 30s at most)", "", 1},
		"no answer for long":        {[]error{errors.New("connection refused")}, late, "", "connection refused: retrying", 1},
		"no word for long":          {nil, late, "", "injector: no answer from the API server", 1},
		"written":                   {[]error{errors.New("connection refused"), nil}, soon, "", "", 0},
		"no rights":                 {[]error{forbidden}, soon, "", "moonsail upgrade", 1},
		"not there":                 {[]error{missing}, soon, "", "moonsail upgrade", 1},
		"there, and written":        {[]error{missing, nil}, soon, "", "", 0},
		"gone after it was written": {[]error{nil, missing}, soon, "", "moonsail upgrade", 1},
		"away after it was written": {[]error{nil, errors.New("timeout")}, soon, "", "timeout", 1},
	} {
		t.Run(name, func(t *testing.T) {
			trust := NewTrust(Options{InjectConfig: "injector"}, begun)
			for _, err := range c.looks {
				trust.note("injector", err)
			}
			if c.waiting == "" {
				require.NoError(t, trust.Waiting(c.now))
			} else {
				require.ErrorContains(t, trust.Waiting(c.now), c.waiting)
			}
			if c.problem == "" {
				require.Empty(t, trust.Problems(c.now))
			} else {
				require.Len(t, trust.Problems(c.now), 1)
				require.Contains(t, trust.Problems(c.now)[0], c.problem)
			}
			require.Equal(t, c.lacking, trust.Lacking())
		})
	}
	for name, o := range map[string]Options{"a certificate of others": {InjectConfig: "injector", CertFile: "tls.crt"}, "no configuration": {}} {
		trust := NewTrust(o, begun)
		require.NoError(t, trust.Waiting(soon), name)
		require.Empty(t, trust.Problems(late), name)
		require.Zero(t, trust.Lacking(), name)
	}
}
