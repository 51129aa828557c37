package chaos

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// slowBy delays each read of a slow connection, and lossRate is the part of reads that wait for a lost packet.
const (
	slowBy   = 150 * time.Millisecond
	lossRate = 0.3
)

// fault does what an action says, and returns when that has ended. It may describe the effect in the event.
func (r *run) fault(ctx context.Context, a Action, e *event) error {
	defer r.mesh.alone(a.Target)()
	switch kind, of, _ := strings.Cut(a.Target, "/"); kind {
	case "plane":
		n, err := strconv.Atoi(of)
		if err != nil {
			return err
		}
		return r.planeFault(ctx, a, e, r.mesh.planes[n-1])
	case "server":
		return r.serverFault(ctx, a)
	case "proxy":
		return r.proxyFault(ctx, a, e, r.mesh.sidecarOf(of))
	}
	for _, s := range r.mesh.sidecars {
		s.relay.reset()
	}
	return nil
}

func (r *run) planeFault(ctx context.Context, a Action, e *event, p *plane) error {
	switch a.What {
	case killPlane:
		p.kill()
		_ = clock.Sleep(ctx, a.For) // if the run is interrupted, the end comes sooner
		return r.mesh.startPlane(ctx, p)
	case restartPlane:
		return r.replace(ctx, e, p, p.argv)
	case upgradePlane:
		return r.upgrade(ctx, a, e, p)
	case cutServer:
		release := p.server.hold()
		defer release()
		return ignoreEnd(clock.Sleep(ctx, a.For))
	}
	return paused(ctx, p.pid(), a.For)
}

// alone waits until no other fault concerns a target, and returns what ends that. On a busy machine a process may start later
// than the plan allows for.
func (m *processes) alone(target string) (end func()) {
	m.mu.Lock()
	lock := m.targets[target]
	if lock == nil {
		lock = &sync.Mutex{}
		m.targets[target] = lock
	}
	m.mu.Unlock()
	lock.Lock()
	return lock.Unlock
}

// upgrade replaces a control plane by another revision under traffic, and after some time again by the first one.
func (r *run) upgrade(ctx context.Context, a Action, e *event, p *plane) error {
	first := p.argv
	if err := r.replace(ctx, e, p, p.next); err != nil {
		return err
	}
	_ = clock.Sleep(ctx, a.For) // as above
	return r.replace(ctx, e, p, first)
}

// replace ends a control plane in order, and starts it with another command line.
func (r *run) replace(ctx context.Context, e *event, p *plane, argv []string) error {
	process, _ := p.running()
	process.Stop(stopTime)
	p.argv = argv
	if err := r.mesh.startPlane(ctx, p); err != nil {
		return err
	}
	e.effect("now %s", strings.Join(commandLine(p.pid()), " "))
	return nil
}

// slow delays the connection of a sidecar to the control planes.
func (r *run) slow(ctx context.Context, a Action, e *event, s *sidecar) {
	by, loss := slowBy, 0.0
	if a.What == lossyProxy {
		by, loss = 0, lossRate
	}
	before := s.relay.slow(by, loss)
	_ = clock.Sleep(ctx, a.For) // as above
	e.effect("%d reads were late", s.relay.slow(0, 0)-before)
}

// paused stops a process for a time.
func paused(ctx context.Context, pid int, d time.Duration) error {
	resume, err := pause(pid)
	if err != nil {
		return err
	}
	defer resume()
	return ignoreEnd(clock.Sleep(ctx, d))
}

// ignoreEnd is for waits that the end of the run cuts short.
func ignoreEnd(error) error { return nil }

func (r *run) serverFault(ctx context.Context, a Action) error {
	if a.What == stopServer {
		return paused(ctx, r.mesh.server.pid(), a.For)
	}
	r.mesh.server.kill()
	_ = clock.Sleep(ctx, a.For) // as above
	return r.mesh.server.start()
}

func (r *run) proxyFault(ctx context.Context, a Action, e *event, s *sidecar) error {
	switch a.What {
	case resetProxy:
		s.relay.reset()
		return nil
	case cutProxy:
		release := s.relay.hold()
		defer release()
		return ignoreEnd(clock.Sleep(ctx, a.For))
	case slowProxy, lossyProxy:
		r.slow(ctx, a, e, s)
		return nil
	case unplugProxy:
		end := s.relay.disconnect()
		_ = clock.Sleep(ctx, a.For) // if the run is interrupted, the end comes sooner
		e.effect("%d connections were refused", end())
		return nil
	case stopAgent:
		return paused(ctx, s.pid(), a.For)
	}
	// Requests of this proxy may fail from here on, until it is ready again.
	end := r.history.disturb(s.workload)
	defer end()
	switch a.What {
	case killAgent:
		s.kill()
		if err := s.start(); err != nil {
			return err
		}
		return r.mesh.awaitSidecar(ctx, s)
	case killEnvoy:
		pid, err := s.envoyPid()
		if err != nil {
			return err
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			return err
		}
		return await(ctx, startTime, s.name+": another Envoy", func(ctx context.Context) error {
			now, err := s.envoyPid()
			if err != nil || now == pid {
				return errSameEnvoy
			}
			return s.admin.Ready(ctx)
		})
	}
	pid, err := s.envoyPid()
	if err != nil {
		return err
	}
	return paused(ctx, pid, a.For)
}

// stopTime bounds the orderly end of a process.
const stopTime = 10 * time.Second

// commandLine returns that of a process.
func commandLine(pid int) []string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
