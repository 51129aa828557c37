// Package rollout has the scenarios in which Deployments of an API server restart: expedia and airbnb. Each compares
// settings of the control plane with package experiment; a setting is a variant.
package rollout

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/moonsail/moonsail/internal/lab/propagation/session"
)

// Options configure a scenario of this package.
type Options struct {
	session.Config
	Peer     *session.Peer // another control plane to measure in turn; nil: none
	Expedia  Size          // size of expedia
	Airbnb   Airbnb        // size of airbnb
	Rounds   int           // measurements of each setting
	Settings []string      // names of the settings to measure; nil: all
	Defect   bool          // make the default setting slow, to test that the report shows it
	Quick    bool
	Version  string
	Budget   time.Duration
	Progress func(label string)
}

// Size is the size of scenario expedia: number of Deployments, pods of each, and proxies. All Deployments
// but the last restart, while the last is scaled to half of its pods.
type Size struct{ Deployments, Pods, Proxies int }

// Airbnb is the size of scenario airbnb. Each round measures each setting for Time. Speed 1 is the rate of
// Airbnb's report: a restart every 10 s and a route change every 5 s.
type Airbnb struct {
	Size
	Time  time.Duration
	Speed float64
}

// ParseSize reads "3x500x500": deployments x pods x proxies.
func ParseSize(text string) (r Size, err error) {
	parts := strings.Split(strings.TrimSpace(text), "x")
	for i, into := range []*int{&r.Deployments, &r.Pods, &r.Proxies} {
		if len(parts) == 3 && err == nil {
			*into, err = strconv.Atoi(parts[i])
		}
	}
	if err != nil || r.Deployments < 2 || r.Pods < 2 || r.Proxies < 1 {
		return Size{}, fmt.Errorf("%q: use DEPLOYMENTSxPODSxPROXIES, at least 2x2x1, for example 3x500x500", text)
	}
	return r, nil
}

// String returns the form that ParseRollout reads.
func (r Size) String() string { return fmt.Sprintf("%dx%dx%d", r.Deployments, r.Pods, r.Proxies) }
