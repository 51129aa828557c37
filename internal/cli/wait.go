package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Exit statuses of "moonsail wait".
const (
	exitTimeout terminal.ExitCode = 3
	exitRefused terminal.ExitCode = 4
)

// waitFlags are those of "moonsail wait".
type waitFlags struct {
	client  debugClient
	out     terminal.Output
	object  objectArg
	forWhat string
	timeout time.Duration
	version string
	domain  string
	goOn    bool

	percent float64 // of forWhat
}

// NewWaitCommand is "moonsail wait".
func NewWaitCommand() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait FILE|DIR|KIND/NAME",
		Short: "Wait until a change has reached the proxies, for pipelines",
		Long:  waitLong, Example: waitExample,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}
	f.add(cmd)
	return cmd
}

const (
	waitLong = `Waits until a share of the connected proxies that need an object have its newest form,
and says so with its exit status:

  0  they have it          3  not within --timeout; it says who does not, and why
  1  cannot be asked       4  a proxy has refused it; Envoy's words are printed
  2  wrong usage

For a FILE (or a directory) it waits until what the file says is in force in the control
plane, and then for the proxies: right after 'cp' or 'kubectl apply' there is no race.
For KIND/NAME it waits for the newest change that the control plane has seen by now;
--resource-version makes it wait for that version to be seen first. As in kubectl,
--namespace is also that of objects in FILE that say none.

Proxies that are not concerned do not count, and neither do those that are disconnected:
they are told of, and get it when they come back.

Where there are several control planes, it waits until all of them have the same form of the
object, and counts the proxies of all. One that does not answer is waited for, whatever the
share, and named in the end (3). --local asks the control plane at --address alone.`
	waitExample = `  kubectl apply -f reviews.yaml && moonsail wait reviews.yaml --timeout 30s
  moonsail wait virtualservice/reviews -n shop --for distribution=99%
  moonsail wait mesh/ --refused-too        # go on where a proxy refuses something
  moonsail wait reviews.yaml --local       # of several control planes, for the proxies of this one`
)

// add adds the flags, and what completes them.
func (f *waitFlags) add(cmd *cobra.Command) {
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.addLocalFlag(cmd)
	f.object.addFlag(cmd, &f.client)
	fs := cmd.Flags()
	fs.StringVar(&f.forWhat, "for", "distribution=100%", "what to wait for: distribution=`P%` of the proxies that need it")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "give up after that `TIME`; 0: never")
	fs.StringVar(&f.version, "resource-version", "", "of KIND/NAME: wait until that `VERSION` is seen first")
	fs.StringVar(&f.domain, "domain", model.DefaultMesh().Domain, "DNS `DOMAIN` of the cluster, to read FILE as the control plane does")
	fs.BoolVar(&f.goOn, "refused-too", false, "go on where a proxy refuses it, and leave such proxies out of the count")
	cmd.ValidArgsFunction = f.object.complete(&f.client, true)
	terminal.Offer(cmd, "for", "distribution=100%", "distribution=95%")
}

// awaited is one object that is waited for.
type awaited struct {
	key     model.Key
	object  model.Object // that must be in force; nil: any
	version string       // that must be in force; empty: any
	told    bool         // the control plane has answered about it, once
	seen    *explain.Explanation
}

// waitResult is what "moonsail wait -o json" prints.
type waitResult struct {
	Reached bool                   `json:"reached"`
	Refused bool                   `json:"refused,omitempty"`
	Waited  string                 `json:"waited"`
	Objects []*explain.Explanation `json:"objects"`
}

func (f *waitFlags) run(cmd *cobra.Command, arg string) error {
	var err error
	if f.percent, err = parseDistribution(f.forWhat); err != nil {
		return terminal.UsageError{Err: err}
	}
	list, err := f.objects(cmd.Context(), arg)
	if err != nil {
		return err
	}
	ctx, cancel := cmd.Context(), context.CancelFunc(func() {})
	if f.timeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, f.timeout)
	}
	defer cancel()
	started := time.Now()
	outcome, err := f.await(ctx, cmd.ErrOrStderr(), list)
	if err != nil {
		return err
	}
	return f.report(cmd, list, outcome, time.Since(started))
}

// parseDistribution reads "distribution=95%".
func parseDistribution(s string) (float64, error) {
	what, share, _ := strings.Cut(s, "=")
	p, err := strconv.ParseFloat(strings.TrimSuffix(share, "%"), 64)
	if what != "distribution" || err != nil || !(p > 0 && p <= 100) {
		return 0, fmt.Errorf("--for %q: the form is distribution=P%%, with P above 0 and at most 100", s)
	}
	return p, nil
}

// objects are those that the argument names, or those of the file that it is.
func (f *waitFlags) objects(ctx context.Context, arg string) ([]*awaited, error) {
	if isObject(arg) {
		key, err := f.object.key(ctx, &f.client, arg)
		return []*awaited{{key: key, version: f.version}}, err
	}
	if f.version != "" {
		return nil, terminal.UsageError{Err: errors.New("--resource-version goes with KIND/NAME, not with a file")}
	}
	tree, err := file.Analyze(arg, config.Decoder{Domain: f.domain, DefaultNamespace: f.object.namespace})
	if err != nil {
		return nil, &terminal.UserError{What: "cannot read it", Where: arg, Err: err, Next: "give a file or directory of YAML, or KIND/NAME"}
	}
	if tree.Problems.HasErrors() {
		return nil, &terminal.UserError{What: "it has errors, and what they are in will never be in force", Where: arg, Next: "see 'moonsail analyze " + arg + "'"}
	}
	var out []*awaited
	for _, o := range tree.Objects {
		out = append(out, &awaited{key: o.Metadata().Key, object: o})
	}
	if len(out) == 0 {
		return nil, &terminal.UserError{What: "it has no object that the mesh reads", Where: arg, Next: "those are " + kindNames()}
	}
	return out, nil
}

// waitOutcome is how a wait ended.
type waitOutcome uint8

const (
	waitReached waitOutcome = iota
	waitRefused
	waitTimedOut
)

// Between two questions: at first changes are a matter of milliseconds.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = time.Second
)

// await asks until everything is reached, something is refused, or ctx ends.
func (f *waitFlags) await(ctx context.Context, progress io.Writer, list []*awaited) (waitOutcome, error) {
	p := terminal.StartProgress(progress, "waiting for the control plane")
	defer p.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause := firstPoll; ; pause = min(pause*3/2, lastPoll) {
		select {
		case <-ctx.Done():
			return f.ended(ctx)
		case <-timer.C:
		}
		outcome, err := f.look(ctx, list)
		if ctx.Err() != nil {
			return f.ended(ctx)
		}
		if err != nil || outcome != waitTimedOut {
			return outcome, err
		}
		p.Update(progressText(list))
		timer.Reset(pause)
	}
}

// ended tells a timeout from an interrupt.
func (f *waitFlags) ended(ctx context.Context) (waitOutcome, error) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return waitTimedOut, nil
	}
	return waitTimedOut, ctx.Err()
}

// look asks once about each object that is not reached yet.
func (f *waitFlags) look(ctx context.Context, list []*awaited) (waitOutcome, error) {
	outcome := waitReached
	for _, a := range list {
		e, err := f.client.explain(ctx, a.key, false, maxShown)
		a.told = a.told || err == nil || isAbsent(err)
		switch {
		case err != nil && isAbsent(err) && (a.object != nil || a.version != ""): // it has not been seen yet
			a.seen, outcome = nil, unlessRefused(outcome)
			continue
		case err != nil:
			return outcome, err
		}
		a.seen = e
		switch {
		case a.refused() && !f.goOn:
			outcome = waitRefused // the others are asked about all the same: all are told of
		case !a.reached(f.percent, f.goOn):
			outcome = unlessRefused(outcome)
		}
	}
	return outcome, nil
}

// unlessRefused is how it stands with something that is not reached yet.
func unlessRefused(o waitOutcome) waitOutcome {
	if o == waitRefused {
		return o
	}
	return waitTimedOut
}

// maxShown bounds how many proxies are named.
const maxShown = 20

// current tells whether what is waited for is in force.
func (a *awaited) current() bool {
	return a.seen != nil && a.seen.Revision > 0 && a.seen.State != changelog.Building &&
		(a.object == nil || explain.InForce(a.object, a.seen)) && (a.version == "" || a.version == a.seen.ResourceVersion)
}

func (a *awaited) refused() bool { return a.current() && a.seen.Counts.Refused > 0 }

func (a *awaited) reached(percent float64, withoutRefused bool) bool {
	if !a.current() || !a.seen.Everywhere() {
		return false
	}
	c := a.seen.Counts
	if withoutRefused {
		c.Refused = 0
	}
	return c.Percent() >= percent
}
