package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/base/clock"
	"github.com/moonsail/moonsail/internal/lab/child"
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
	case "roots":
		return r.rotate(ctx, e)
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
	case slowServer:
		slow(ctx, a, e, p.server, slowBy, lossRate)
		return nil
	case resetServer:
		p.server.reset()
		return nil
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
	p.end(func(process *child.Process) { process.Stop(stopTime) })
	p.argv = argv
	if err := r.mesh.startPlane(ctx, p); err != nil {
		return err
	}
	e.effect("now %s", strings.Join(commandLine(p.pid()), " "))
	return nil
}

// expire keeps a sidecar from its CA until its certificate has expired for some time. When the CA is back, the certificate
// must be renewed soon. Requests may fail only in between.
func (r *run) expire(ctx context.Context, a Action, e *event, s *sidecar) error {
	end := s.ca.disconnect()
	defer end()
	expiry, err := s.certExpiry(ctx)
	if err != nil {
		return err
	}
	_ = clock.Sleep(ctx, time.Until(expiry)-grace) // if the run is interrupted, the end comes sooner
	over := r.history.disturb(s.workload)
	defer over()
	_ = clock.Sleep(ctx, time.Until(expiry)+a.For) // as above
	refused, back := end(), time.Now()
	err = await(ctx, quietTime, s.name+": a new certificate", func(ctx context.Context) error {
		now, err := s.certExpiry(ctx)
		if err == nil && !now.After(time.Now()) {
			err = fmt.Errorf("the certificate has expired at %s", now.Format(time.RFC3339))
		}
		return err
	})
	if err != nil && ctx.Err() == nil {
		r.found(violation{At: time.Now(), Kind: "stale", Subject: s.workload, Text: err.Error()})
	}
	e.effect("%d connections were refused; the certificate had expired for %.1f s, and was renewed after %.1f s", refused, back.Sub(expiry).Seconds(), time.Since(back).Seconds())
	return nil
}

// certExpiry returns when the newest certificate of a sidecar's Envoy expires.
func (s *sidecar) certExpiry(ctx context.Context) (last time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTime)
	defer cancel()
	text, err := s.admin.Certs(ctx)
	if err != nil {
		return last, err
	}
	var list struct {
		Certificates []struct {
			Chain []struct {
				Expiration time.Time `json:"expiration_time"`
			} `json:"cert_chain"`
		} `json:"certificates"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return last, fmt.Errorf("%s: certificates of Envoy: %w", s.name, err)
	}
	for _, c := range list.Certificates {
		for _, leaf := range c.Chain {
			if leaf.Expiration.After(last) {
				last = leaf.Expiration
			}
		}
	}
	if last.IsZero() {
		return last, fmt.Errorf("%s: Envoy has no certificate", s.name)
	}
	return last, nil
}

// slow delays the bytes of a connection, and stalls a part of its reads as lost packets do, for the time of a fault.
func slow(ctx context.Context, a Action, e *event, r *relay, by time.Duration, loss float64) {
	before := r.slow(by, loss)
	_ = clock.Sleep(ctx, a.For) // if the run is interrupted, the end comes sooner
	e.effect("%d reads were late", r.slow(0, 0)-before)
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
	case slowProxy:
		slow(ctx, a, e, s.relay, slowBy, 0)
		return nil
	case lossyProxy:
		slow(ctx, a, e, s.relay, 0, lossRate)
		return nil
	case unplugProxy:
		end := s.relay.disconnect()
		_ = clock.Sleep(ctx, a.For) // if the run is interrupted, the end comes sooner
		e.effect("%d connections were refused", end())
		return nil
	case stopAgent:
		return paused(ctx, s.pid(), a.For)
	case expireProxy:
		return r.expire(ctx, a, e, s)
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
