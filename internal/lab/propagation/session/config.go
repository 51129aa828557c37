package session

import (
	"fmt"
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Config names the control plane to measure and the place of its mesh.
type Config struct {
	// Programs are the binaries of control planes and of the baseline.
	Programs child.Programs
	// TLS gives streams TLS, and each proxy the certificate of its namespace. The baseline and bare TCP
	// stay in plain text.
	TLS bool
	// ServeFlags are extra flags of the control plane.
	ServeFlags []string
	// Target is the address of another control plane, which runs already and reads Dir. Empty: the lab starts one.
	External    string
	ExternalPID int
	Dir         string // for the mesh; empty: a temporary one
	// Source is where the mesh is: in a directory, or in the API server of Kubeconfig, which must not contain
	// another mesh of the lab. The zero value is SourceFile.
	Source     Source
	Kubeconfig string

	// ConnectLimit is the time in which all proxies must connect; 0: ConnectTime.
	ConnectLimit time.Duration

	// Step is called with the current step; may be nil.
	Step func(label string)
}

// Stepf reports the current step.
func (c *Config) Stepf(format string, args ...any) {
	if c.Step != nil {
		c.Step(fmt.Sprintf(format, args...))
	}
}
