package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/envoylog"
	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/xds/callstats"
)

// Backoff of restarts after a crash: it doubles from firstBackoff to maxBackoff. It starts at firstBackoff again after an
// Envoy that ran for steadyAfter.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	steadyAfter  = 30 * time.Second
)

// Envoy's messages when it cannot bind an address.
const (
	addressInUse     = "Address already in use"
	addressNotOnHost = "Cannot assign requested address"
)

// errStop means that the agent was asked to end while no Envoy ran.
var errStop = errors.New("stop")

// child is one Envoy process.
type child struct {
	process *envoy.Process
	output  *envoylog.Forwarder
	started time.Time
	watch   *watch
}

// supervise runs Envoy, and starts it again after each crash, until the sidecar ends.
func (a *agent) supervise(ctx context.Context) error {
	backoff := time.Duration(0)
	for attempt := 0; ; attempt++ {
		c, err := a.start(ctx)
		if err != nil {
			return err
		}
		ended, err := a.wait(ctx, c)
		if ended {
			return err
		}
		if attempt == 0 && (!c.watch.answered.Load() || c.output.Contains(addressInUse)) {
			if a.bootstrap.dropPatches(c) {
				attempt--
				continue
			}
			return a.startError(c)
		}
		lived := time.Since(c.started)
		backoff = nextBackoff(backoff, lived)
		a.metrics.restarts.Inc()
		a.log.Error("Envoy crashed; starting it again", "ending", ending(c.process.Err()),
			"after", lived.Round(time.Millisecond), "backoff", backoff, "restart", attempt+1)
		if err := a.pause(ctx, backoff); err != nil {
			return ignoreStop(err)
		}
	}
}

// nextBackoff returns the wait after an Envoy that ran for lived. last is the wait before that Envoy, 0 for the first one.
func nextBackoff(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= steadyAfter {
		return firstBackoff
	}
	return min(2*last, maxBackoff)
}

func (a *agent) start(ctx context.Context) (*child, error) {
	if err := a.bootstrap.giveToEnvoy(); err != nil {
		return nil, err
	}
	output := envoylog.New(a.log)
	p, err := envoy.Start(envoy.Options{
		Path:              a.bootstrap.binary,
		Bootstrap:         a.bootstrap.path,
		Concurrency:       a.concurrency,
		DrainTime:         a.listenerDrain,
		FlushInterval:     a.proxyConfig.GetFileFlushInterval().AsDuration(),
		FlushKB:           a.proxyConfig.GetFileFlushMinSizeKb(),
		LogLevel:          a.LogLevel,
		ComponentLogLevel: a.ComponentLogLevel,
		LogFormat:         envoylog.Format,
		LocalIPv6:         strings.Contains(a.Workload.IPs[0], ":"),
		Output:            output,
		Stdout:            a.AccessLog,
		User:              a.envoyUser(),
		Env:               a.telemetryEnv(),
	})
	if err != nil {
		return nil, err
	}
	a.scrapes.EnvoyStarted()
	a.metrics.starts.Inc()
	a.metrics.up.Set(1)
	a.workers.Runs(p.Pid())
	c := &child{process: p, output: output, started: time.Now()}
	c.watch = a.watch(ctx, p)
	return c, nil
}

// wait waits for a crash of Envoy (ended is false), or for the end of the sidecar, and then ends Envoy.
func (a *agent) wait(ctx context.Context, c *child) (ended bool, err error) {
	defer func() {
		<-c.process.Done()
		c.watch.stop()
		c.output.Flush()
		a.workers.Runs(0)
		a.metrics.up.Set(0)
		a.metrics.setReady(false)
	}()
	for {
		select {
		case <-c.process.Done():
			return false, nil
		case sig := <-a.Signals:
			a.forward(c.process, sig)
		case <-a.Abort:
			return true, a.force(c.process)
		case <-a.quit.done:
			a.log.Info("quit requested; ending Envoy without a drain")
			return true, a.stop(c.process)
		case <-ctx.Done():
			return true, a.drain(c.process)
		}
	}
}

func (a *agent) forward(p *envoy.Process, sig os.Signal) {
	if err := p.Signal(sig); err != nil {
		a.log.Warn("cannot forward a signal to Envoy", "signal", sig, "error", err)
	}
}

func (a *agent) force(p *envoy.Process) error {
	a.log.Warn("aborted; open connections are cut")
	p.Kill()
	return ErrForced
}

// pause waits before the next start of Envoy.
func (a *agent) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-a.Signals: // no Envoy runs
		case <-a.Abort:
			return ErrForced
		case <-a.quit.done:
			return errStop
		case <-ctx.Done():
			return errStop
		}
	}
}

func ignoreStop(err error) error {
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

// startError explains why the first Envoy ended before its admin interface answered. The cause is configuration: another
// start would not help.
func (a *agent) startError(c *child) error {
	advice := "see its output below; `moonsail agent --print-bootstrap` prints its configuration"
	switch {
	case c.output.Contains(addressInUse):
		advice = fmt.Sprintf("an address is in use: is another sidecar running there? Choose another --ip, or --admin-port (%s) "+
			"or --prometheus-port (%d)", a.adminAddr, a.ports.Prometheus)
	case c.output.Contains(addressNotOnHost):
		advice = fmt.Sprintf("this machine does not have the address %s: correct --ip, --bind-address or --admin-address", a.bind)
	}
	return fmt.Errorf("cannot start Envoy (%s): %s\n  %s", ending(c.process.Err()), advice, strings.Join(c.output.Last(), "\n  "))
}

// ending describes how a process ended, with a likely cause.
func ending(err error) string {
	text := envoy.Ending(err)
	if strings.Contains(text, syscall.SIGKILL.String()) {
		text += " (out of memory?)"
	}
	return text
}

// metricsWorkload describes the sidecar's workload in labels of metrics.
func (s *settings) metricsWorkload() *callstats.Workload {
	w := &s.Workload
	return istiometrics.Of(cmp.Or(w.WorkloadName, w.Name), w.Namespace, s.ClusterID, w.Labels)
}

// telemetryEnv are environment variables with facts about the workload for access logs, metrics and spans. Envoy's
// configuration, which many workloads share, refers to them. What the user has set for tracers stays.
func (s *settings) telemetryEnv() []string {
	own := s.metricsWorkload()
	env := []string{
		callstats.EnvWorkload + "=" + own.Text(),
		callstats.EnvCanonicalService + "=" + own.Service,
		callstats.EnvCanonicalRevision + "=" + cmp.Or(own.Revision, callstats.Latest),
		callstats.EnvClusterID + "=" + s.ClusterID,
		callstats.EnvMeshID + "=" + s.MeshID,
		callstats.EnvNamespace + "=" + own.Namespace,
	}
	if os.Getenv(envDatadogService) == "" {
		env = append(env, envDatadogService+"="+s.node.Cluster)
	}
	return append(env, envResource+"="+withServiceName(os.Getenv(envResource), s.node.Cluster))
}

// Variables for tracers.
const (
	envResource       = "OTEL_RESOURCE_ATTRIBUTES" // OpenTelemetry's
	envDatadogService = "DD_SERVICE"
)

// withServiceName adds service.name to attributes of a resource without it. Spans would otherwise have the same service,
// unknown_service:envoy, for all workloads.
func withServiceName(attributes, service string) string {
	const key = "service.name"
	var kept []string
	for a := range strings.SplitSeq(attributes, ",") {
		name, _, _ := strings.Cut(a, "=")
		if strings.TrimSpace(name) == key {
			return attributes
		}
		if strings.TrimSpace(a) != "" {
			kept = append(kept, a)
		}
	}
	return strings.Join(append(kept, key+"="+service), ",")
}
