package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/agent/istiometrics"
	"github.com/moonsail/moonsail/internal/sidecar/envoy"
)

// Restarts after a crash: the wait doubles from firstBackoff to maxBackoff, and starts
// anew after an Envoy that lived for steadyAfter.
const (
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 10 * time.Second
	steadyAfter  = 30 * time.Second
)

// What Envoy says when it cannot bind.
const (
	addressInUse     = "Address already in use"
	addressNotOnHost = "Cannot assign requested address"
)

const (
	readyPoll   = 50 * time.Millisecond
	readyRemind = 10 * time.Second // how often a sidecar that is not ready says why
)

// errStop: the agent was asked to end while no Envoy ran.
var errStop = errors.New("stop")

// child is one Envoy process and what belongs to it.
type child struct {
	process *envoy.Process
	output  *forwarder
	started time.Time
	watch   *watch
}

// supervise starts Envoy, again after each crash, until told to end.
func (a *agent) supervise(ctx context.Context) error {
	backoff := time.Duration(0)
	for attempt := 0; ; attempt++ {
		c, err := a.start(ctx)
		if err != nil {
			return err
		}
		ended, err := a.attend(ctx, c)
		if ended {
			return err
		}
		if attempt == 0 && (!c.watch.answered() || c.output.said(addressInUse)) {
			if a.dropAmendments(c) {
				attempt--
				continue
			}
			return a.startError(c)
		}
		lived := time.Since(c.started)
		backoff = nextBackoff(backoff, lived)
		a.metrics.restarts.Inc()
		a.log.Error("Envoy ended by itself; starting it again", "ending", ending(c.process.Err()),
			"after", lived.Round(time.Millisecond), "backoff", backoff, "restart", attempt+1)
		if err := a.pause(ctx, backoff); err != nil {
			return ignoreStop(err)
		}
	}
}

// nextBackoff is the wait after an Envoy that lived so long; last is the wait before it,
// 0 before the first.
func nextBackoff(last, lived time.Duration) time.Duration {
	if last == 0 || lived >= steadyAfter {
		return firstBackoff
	}
	return min(2*last, maxBackoff)
}

func (a *agent) start(ctx context.Context) (*child, error) {
	if err := a.giveToEnvoy(); err != nil {
		return nil, err
	}
	output := newForwarder(a.log)
	p, err := envoy.Start(envoy.Options{
		Path:              a.binary,
		Bootstrap:         a.bootstrap,
		Concurrency:       a.concurrency,
		DrainTime:         a.listenDrain,
		FlushInterval:     a.proxyConfig.GetFileFlushInterval().AsDuration(),
		FlushKB:           a.proxyConfig.GetFileFlushMinSizeKb(),
		LogLevel:          a.LogLevel,
		ComponentLogLevel: a.ComponentLogLevel,
		LogFormat:         envoyLogFormat,
		LocalIPv6:         strings.Contains(a.Workload.IPs[0], ":"),
		Output:            output,
		Stdout:            a.AccessLog,
		User:              a.envoyUser(),
		Env:               a.telemetryEnv(),
	})
	if err != nil {
		return nil, err
	}
	a.live.Store(&istiometrics.Live{})
	a.metrics.starts.Inc()
	a.metrics.up.Set(1)
	a.workerWatch.runs(p.Pid())
	c := &child{process: p, output: output, started: time.Now()}
	c.watch = a.watch(ctx, p)
	return c, nil
}

// attend waits for the process to end (ended is false: it crashed) or for the order to
// end it, which it carries out.
func (a *agent) attend(ctx context.Context, c *child) (ended bool, err error) {
	defer func() {
		<-c.process.Done()
		c.watch.stop()
		c.output.flush()
		a.workerWatch.runs(0)
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
		case <-a.quit:
			a.log.Info("asked to quit; ending Envoy without a drain")
			return true, a.stop(c.process)
		case <-ctx.Done():
			return true, a.drain(c.process)
		}
	}
}

func (a *agent) forward(p *envoy.Process, sig os.Signal) {
	if err := p.Signal(sig); err != nil {
		a.log.Warn("signal not forwarded to Envoy", "signal", sig, "error", err)
	}
}

func (a *agent) force(p *envoy.Process) error {
	a.log.Warn("told to end at once; open connections are cut")
	p.Kill()
	return ErrForced
}

// pause waits between two Envoys.
func (a *agent) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			return nil
		case <-a.Signals: // no Envoy to pass it to
		case <-a.Abort:
			return ErrForced
		case <-a.quit:
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

// startError explains the first Envoy's end before its admin interface answered: that is
// configuration, and starting again would not help.
func (a *agent) startError(c *child) error {
	advice := "see what it said; `moonsail agent --print-bootstrap` shows its configuration"
	switch {
	case c.output.said(addressInUse):
		advice = fmt.Sprintf("an address is in use: is another sidecar running there? Choose another --ip, or --admin-port (%s) "+
			"or --prometheus-port (%d)", a.adminAddr, a.ports.Prometheus)
	case c.output.said(addressNotOnHost):
		advice = fmt.Sprintf("this machine does not have the address %s: correct --ip, --bind-address or --admin-address", a.bind)
	}
	return fmt.Errorf("cannot start Envoy (%s): %s\n  %s", ending(c.process.Err()), advice, strings.Join(c.output.last(), "\n  "))
}

// ending says how a process ended, and what may have done it.
func ending(err error) string {
	text := envoy.Ending(err)
	if strings.Contains(text, syscall.SIGKILL.String()) {
		text += " (out of memory?)"
	}
	return text
}
