package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/config"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/source/file"
	"github.com/moonsail/moonsail/internal/source/kube"
	"github.com/moonsail/moonsail/internal/terminal"
	"github.com/moonsail/moonsail/internal/xds/distribution"
)

// Exit statuses of `moonsail wait`.
const (
	exitTimeout terminal.ExitCode = 3
	exitRefused terminal.ExitCode = 4
)

// waitFlags are the values of the flags of `moonsail wait`.
type waitFlags struct {
	client      client.ControlPlane
	out         terminal.Output
	object      client.Object
	forWhat     string
	timeout     time.Duration
	version     string
	domain      string
	skipRefused bool

	percent float64 // of forWhat
	already bool    // nothing had to be waited for
}

func newWaitCommand() *cobra.Command {
	var f waitFlags
	cmd := &cobra.Command{
		Use:   "wait FILE|DIR|KIND/NAME",
		Short: "Wait until a change has reached the proxies",
		Long: `Wait until a share of the connected proxies that need an object have its newest version, for pipelines.
The exit status is the result:

  0    reached
  1    failed
  2    wrong usage
  3    not reached within --timeout; the output lists the proxies and reasons
  4    refused by a proxy; the output has Envoy's message
  130  interrupted

For a file or directory, the command waits until the control plane has the objects in it, and then for
the proxies. It may therefore run right after 'cp' or 'kubectl apply'. As in kubectl, --namespace
applies to objects in the file without a namespace. In a cluster, a control plane reads only the
Secrets and ConfigMaps that other objects name. The command leaves out the others, unless the file
has nothing else. For KIND/NAME, the command waits for the newest change that the control plane has
seen, or first for the version in --resource-version. Without --resource-version it fails if the newest
version has errors or its file cannot be read, so that the control plane does not use it. KIND NAME is accepted too, and
NAME.NAMESPACE instead of NAME.

Proxies that the change does not concern, and disconnected proxies, do not count. Disconnected ones are
reported, and get the change when they reconnect.

With several control planes, all of them must have the same version, and the proxies of all count. The
command waits for a control plane that does not answer, whatever the share, and names it at the end.
--local asks one control plane alone.`,
		Example: `  # Wait for the objects in a file
  kubectl apply -f reviews.yaml && moonsail wait reviews.yaml --timeout 30s

  # Wait for 99 % of the proxies
  moonsail wait virtualservice/reviews -n shop --for distribution=99%

  # Do not fail if a proxy refuses something
  moonsail wait mesh/ --refused-too`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			object, err := client.ObjectArg(args)
			if err != nil {
				return err
			}
			if len(args) == 2 && !client.IsObject(object) {
				return terminal.UsageError{Err: fmt.Errorf("%s and %s: give one file or directory, KIND/NAME, or KIND NAME", args[0], args[1])}
			}
			return f.run(cmd, object)
		},
	}
	f.addFlags(cmd)
	return cmd
}

func (f *waitFlags) addFlags(cmd *cobra.Command) {
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	f.client.AddLocalFlag(cmd)
	f.object.AddFlag(cmd, &f.client)
	fs := cmd.Flags()
	fs.StringVar(&f.forWhat, "for", "distribution=100%", "share of proxies to wait for, as distribution=`P%`")
	fs.DurationVar(&f.timeout, "timeout", 30*time.Second, "maximum `TIME` to wait; 0: no limit")
	fs.StringVar(&f.version, "resource-version", "", "`VERSION` of KIND/NAME to wait for")
	fs.StringVar(&f.domain, "domain", model.DefaultMesh().Domain, "DNS `DOMAIN` of the cluster, to read FILE as the control plane does")
	fs.BoolVar(&f.skipRefused, "refused-too", false, "leave out proxies that refuse the change, instead of failing")
	cmd.ValidArgsFunction = f.object.Complete(true)
	terminal.Offer(cmd, "for", "distribution=100%", "distribution=95%")
}

// awaited is one object to wait for.
type awaited struct {
	key      model.Key
	object   model.Object // the object that must be in force; nil: any
	version  string       // the version that must be in force; empty: any
	optional bool         // the control plane may not read it: no object of the file names this Secret or ConfigMap
	answered bool         // the control plane has answered about it at least once
	advice   string       // what to do if the control plane does not have it, as its last answer names it
	seen     *explain.Explanation
}

// waitResult is the result of `moonsail wait`.
type waitResult struct {
	Reached bool                   `json:"reached"`
	Already bool                   `json:"already,omitempty"` // it was distributed before the command began to wait
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
		return f.object.Explain(ctx, list[0].key, err)
	}
	return f.report(cmd, list, outcome, time.Since(started))
}

// parseDistribution reads "distribution=95%".
func parseDistribution(s string) (float64, error) {
	what, share, _ := strings.Cut(s, "=")
	p, err := strconv.ParseFloat(strings.TrimSuffix(share, "%"), 64)
	if what != "distribution" || err != nil || !(p > 0 && p <= 100) {
		return 0, fmt.Errorf("--for %q: use distribution=P%%, with P above 0 and at most 100", s)
	}
	return p, nil
}

// objects returns the object that the argument names, or those in the file.
func (f *waitFlags) objects(ctx context.Context, arg string) ([]*awaited, error) {
	if client.IsObject(arg) {
		key, err := f.object.Key(ctx, arg)
		return []*awaited{{key: key, version: f.version}}, err
	}
	if f.version != "" {
		return nil, terminal.UsageError{Err: errors.New("--resource-version: not allowed with a file: give KIND/NAME")}
	}
	tree, err := file.Analyze(arg, config.Decoder{Domain: f.domain, DefaultNamespace: f.object.Namespace})
	if errors.Is(err, fs.ErrNotExist) {
		if mistyped := client.MistypedKind(arg); mistyped != nil {
			return nil, mistyped
		}
	}
	if err != nil {
		return nil, &terminal.UserError{What: "cannot read it", Where: arg, Err: err, Next: "give a file or directory of YAML, or KIND/NAME"}
	}
	for _, p := range tree.Problems {
		if p.Severity == problem.SeverityError {
			return nil, hasErrors(p, "will not use it", arg, "moonsail analyze "+arg)
		}
	}
	if len(tree.Objects) == 0 {
		return nil, &terminal.UserError{What: "it has no object that the mesh reads", Where: arg, Next: "use one of " + client.KindNames()}
	}
	return awaitedIn(tree.Objects), nil
}

// awaitedIn returns the objects of a file, the optional ones last: they are asked for when the control plane has the others.
func awaitedIn(objects []model.Object) []*awaited {
	referenced := kube.Referenced(objects)
	var out, optional []*awaited
	for _, o := range objects {
		a := &awaited{key: o.Metadata().Key, object: o}
		if (a.key.Kind == model.KindSecret || a.key.Kind == model.KindConfigMap) && !referenced[a.key] {
			a.optional = true
			optional = append(optional, a)
			continue
		}
		out = append(out, a)
	}
	if len(out) == 0 { // then they are all that the user waits for
		for _, a := range optional {
			a.optional = false
		}
	}
	return append(out, optional...)
}

// refusedBySource returns the error of an object whose newest version is not in force, or only in part, because it has errors; nil:
// it has none, or the user waits for a certain version.
func (a *awaited) refusedBySource() error {
	if a.object != nil || a.version != "" || a.seen.Error == nil {
		return nil
	}
	consequence := "does not use its newest version"
	if a.seen.Partly {
		consequence = "uses only a part of it"
	}
	return hasErrors(*a.seen.Error, consequence, a.seen.Origin, explainCommand(a.key))
}

func explainCommand(k model.Key) string {
	command := fmt.Sprintf("moonsail explain %s/%s", strings.ToLower(string(k.Kind)), model.CommandWord(k.Name, "NAME"))
	if k.Namespace == "" {
		return command
	}
	return command + " -n " + model.CommandWord(k.Namespace, "NAMESPACE")
}

// hasErrors returns the error of a file, directory or object whose first error is p. place is where p is if p does not know,
// and command shows all problems.
func hasErrors(p problem.Problem, consequence, place, command string) error {
	where := cmp.Or(p.Where(), place)
	p.File, p.Line = "", 0
	first := strings.TrimPrefix(p.String(), string(p.Severity)+": ")
	return &terminal.UserError{What: "it has errors, so the control plane " + consequence, Where: where, Err: errors.New(first),
		Next: "see '" + command + "' for all problems"}
}

// waitOutcome is the result of a wait.
type waitOutcome uint8

const (
	waitReached waitOutcome = iota
	waitRefused
	waitTimedOut
)

// Pauses between two questions. Most changes take milliseconds.
const (
	firstPoll = 20 * time.Millisecond
	lastPoll  = time.Second
)

// await asks until all objects are reached, one is refused, or ctx ends.
func (f *waitFlags) await(ctx context.Context, progress io.Writer, list []*awaited) (waitOutcome, error) {
	p := terminal.StartProgress(progress, "waiting for the control plane")
	defer p.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for pause, looks := firstPoll, 1; ; pause, looks = min(pause*3/2, lastPoll), looks+1 {
		select {
		case <-ctx.Done():
			return f.ended(ctx)
		case <-timer.C:
		}
		outcome, err := f.look(ctx, list)
		f.already = outcome == waitReached && looks == 1
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

// ended distinguishes a timeout from an interrupt.
func (f *waitFlags) ended(ctx context.Context) (waitOutcome, error) {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return waitTimedOut, nil
	}
	return waitTimedOut, ctx.Err()
}

// look asks once about each object.
func (f *waitFlags) look(ctx context.Context, list []*awaited) (waitOutcome, error) {
	outcome := waitReached
	for _, a := range list {
		e, err := fetchExplanation(ctx, &f.client, a.key, false, maxShown)
		a.answered = a.answered || err == nil || client.IsNotFound(err)
		switch {
		case err != nil && client.IsNotFound(err) && (a.object != nil || a.version != ""): // the control plane has not seen it yet
			if a.seen, a.advice = nil, client.AdviceOf(err); !a.optional {
				outcome = unlessRefused(outcome)
			}
			continue
		case err != nil:
			return outcome, err
		}
		a.seen = e
		if err := a.refusedBySource(); err != nil {
			return outcome, err
		}
		switch {
		case a.refused() && !f.skipRefused:
			outcome = waitRefused // the loop goes on, to report all objects
		case !a.reached(f.percent, f.skipRefused):
			outcome = unlessRefused(outcome)
		}
	}
	return outcome, nil
}

// unlessRefused returns the outcome with an object that is not reached yet.
func unlessRefused(o waitOutcome) waitOutcome {
	if o == waitRefused {
		return o
	}
	return waitTimedOut
}

// maxShown bounds the proxies that are named.
const maxShown = 20

// current reports whether the awaited version is in force.
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

func progressText(list []*awaited) string {
	unseen, behind, elsewhere := 0, 0, ""
	for _, a := range list {
		if a.optional && a.seen == nil {
			continue
		}
		if !a.current() {
			unseen++
			continue
		}
		behind = max(behind, a.seen.Counts.Behind)
		if lack := lacking(a.seen.Elsewhere); len(lack) > 0 {
			elsewhere = lack[0].ControlPlane
		}
	}
	switch {
	case unseen > 0:
		return fmt.Sprintf("waiting for the control plane to see %s", terminal.Count(unseen, "object"))
	case elsewhere != "":
		return "waiting for the control plane " + elsewhere
	}
	return fmt.Sprintf("waiting for %s", terminal.Count(behind, "proxy"))
}

// report prints the result, and returns it as exit status.
func (f *waitFlags) report(cmd *cobra.Command, list []*awaited, outcome waitOutcome, took time.Duration) error {
	r := waitResult{Reached: outcome == waitReached, Already: f.already, Refused: outcome == waitRefused, Waited: took.Round(time.Millisecond).String()}
	for _, a := range list {
		if a.seen == nil {
			a.seen = &explain.Explanation{Object: a.key, Proxies: []distribution.ProxySyncStatus{}}
		}
		r.Objects = append(r.Objects, a.seen)
	}
	err := f.out.Print(cmd.OutOrStdout(), r, func(w io.Writer) error { return f.print(cmd, w, list, outcome, r.Waited) })
	switch {
	case err != nil:
		return err
	case outcome == waitTimedOut:
		return exitTimeout
	case outcome == waitRefused:
		return exitRefused
	}
	return nil
}

func (f *waitFlags) print(cmd *cobra.Command, w io.Writer, list []*awaited, outcome waitOutcome, waited string) error {
	s := terminal.StyleFor(w)
	headline := s.Good("reached") + " after " + waited
	if f.already {
		headline = s.Good("already distributed")
	}
	switch outcome {
	case waitRefused:
		headline = s.Bad("refused") + " after " + waited + ": the proxy keeps its last valid version"
	case waitTimedOut:
		headline = s.Bad("not reached") + " within " + waited
	}
	if _, err := fmt.Fprintln(w, headline); err != nil {
		return err
	}
	for _, a := range list {
		if err := f.printObject(cmd, w, s, a, outcome); err != nil {
			return err
		}
	}
	return nil
}

// lastedText is how long the distribution took that the log of changes has.
func lastedText(e *explain.Explanation) string {
	if e.Change == nil || e.Counts.Behind+e.Counts.Refused > 0 || e.Change.State != changelog.Distributed || len(e.Elsewhere) > 0 {
		return ""
	}
	t := timesAt(e.Change, e.Now, tableUnit)
	return fmt.Sprintf("; revision %d took %s", e.Revision, t.total)
}

func (f *waitFlags) printObject(cmd *cobra.Command, w io.Writer, s terminal.Style, a *awaited, outcome waitOutcome) error {
	e := a.seen
	text := countsText(s, &e.Counts) + haveIt(e) + lastedText(e)
	switch {
	case !a.answered:
		text = s.Warn("the control plane did not answer in this time")
	case e.Revision == 0 && !e.Exists && a.optional:
		text = s.Dim("not waited for: no object names it, so the control plane does not read it")
	case e.Revision == 0 && !e.Exists:
		text = s.Warn("the control plane has not seen it: check that it reads this configuration, and " + terminal.Hint(cmd, cmp.Or(a.advice, "run 'moonsail analyze'")))
	case !a.current():
		text = s.Warn("the control plane has another version of it (" + e.Origin + ")")
		if e.Error != nil {
			text += ": " + s.Bad(refusedText(e.Error, e.Partly)+": "+messageOf(*e.Error))
		}
	}
	if _, err := fmt.Fprintf(w, "%s: %s\n", a.key, text); err != nil || !a.current() {
		return err
	}
	if err := printLacking(w, s, e.Elsewhere); err != nil {
		return err
	}
	for i := range e.Proxies {
		p := &e.Proxies[i]
		if outcome == waitRefused && p.Position != distribution.StateRefused {
			continue
		}
		if _, err := fmt.Fprintf(w, "  %s: %s\n", proxyOf(p), strings.Join(reasonTexts(cmd, p, e.Now), "\n    ")); err != nil {
			return err
		}
	}
	if e.LeftOut > 0 && !slices.Contains([]waitOutcome{waitReached}, outcome) {
		_, err := fmt.Fprintf(w, "  and %d more: see %s\n", e.LeftOut, terminal.Hint(cmd, "'"+explainCommand(a.key)+"'"))
		return err
	}
	return nil
}
