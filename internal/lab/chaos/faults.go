package chaos

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
)

// slowBy delays each read of a slow connection.
const slowBy = 150 * time.Millisecond

// fault does what an action says, and returns when its effect has ended.
func (r *run) fault(ctx context.Context, a Action) error {
	switch kind, of, _ := strings.Cut(a.Target, "/"); kind {
	case "plane":
		n, err := strconv.Atoi(of)
		if err != nil {
			return err
		}
		return r.planeFault(ctx, a, r.mesh.planes[n-1])
	case "server":
		return r.serverFault(ctx, a)
	case "proxy":
		return r.proxyFault(ctx, a, r.mesh.sidecarOf(of))
	}
	for _, s := range r.mesh.sidecars {
		s.relay.reset()
	}
	return nil
}

func (r *run) planeFault(ctx context.Context, a Action, p *plane) error {
	switch a.What {
	case killPlane:
		p.kill()
		_ = clock.Sleep(ctx, a.For) // if the run is interrupted, the end comes sooner
		return r.mesh.startPlane(ctx, p)
	case restartPlane:
		process, _ := p.running()
		process.Stop(10 * time.Second)
		return r.mesh.startPlane(ctx, p)
	case cutServer:
		release := p.server.hold()
		defer release()
		return ignoreEnd(clock.Sleep(ctx, a.For))
	}
	return paused(ctx, p.pid(), a.For)
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

func (r *run) proxyFault(ctx context.Context, a Action, s *sidecar) error {
	switch a.What {
	case resetProxy:
		s.relay.reset()
		return nil
	case cutProxy:
		release := s.relay.hold()
		defer release()
		return ignoreEnd(clock.Sleep(ctx, a.For))
	case slowProxy:
		s.relay.slow(slowBy)
		defer s.relay.slow(0)
		return ignoreEnd(clock.Sleep(ctx, a.For))
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
