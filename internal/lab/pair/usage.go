package pair

import (
	"time"

	"github.com/moonsail/moonsail/internal/lab/child"
)

// Usage is the CPU time that processes have used so far; 0: no such process.
type Usage struct{ Client, Server, Backend time.Duration }

// Usage returns that of the Envoys and of the application.
func (p *Pair) Usage() (u Usage, err error) {
	for _, x := range []struct {
		s    *Sidecar
		into *time.Duration
	}{{p.Client, &u.Client}, {p.Server, &u.Server}} {
		if x.s == nil {
			continue
		}
		if *x.into, err = child.CPU(x.s.Pid); err != nil {
			return u, err
		}
	}
	u.Backend, err = child.CPU(p.mesh.BackendPid())
	return u, err
}

// Since returns the difference to an earlier value.
func (u Usage) Since(before Usage) Usage {
	return Usage{u.Client - before.Client, u.Server - before.Server, u.Backend - before.Backend}
}

// Envoys returns the sum of both sidecars.
func (u Usage) Envoys() time.Duration { return u.Client + u.Server }
