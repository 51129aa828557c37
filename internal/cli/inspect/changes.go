package inspect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
)

// changesFlags are the values of the flags of `moonsail changes`.
type changesFlags struct {
	client     client.ControlPlane
	out        client.ListOutput
	namespaces client.Namespaces
	watch      bool
	count      uint
	since      time.Duration // 0: all
	sort       string        // one of sortKeys
}

func newChangesCommand() *cobra.Command {
	var f changesFlags
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "List changes with the time of each stage",
		Long: `List the newest changes, oldest first, with the time of each stage in milliseconds. A row is one batch
of changed objects on its way to the proxies:

  STORE      from the first event until the batch is stored
  DERIVE     until the configuration that depends on it is derived
  TRANSLATE  until its Envoy resources are encoded
  SEND       until the first response with it is sent
  ACK        until the last proxy that it concerns has answered
  TOTAL      the sum

While proxies are awaited, the stage in progress and TOTAL have the time so far: >5400.0.

PROXIES has the number of proxies with the change, of the connected proxies that it concerns; "gone"
counts those that disconnected before they answered. -o wide and json name the proxies that are still
disconnected without a change, among the newest 100. A * after the revision marks a change that went
out with a newer one.

Each replica of a control plane in a cluster counts its own revisions and proxies. With several, each
has a row for a change, and CONTROL PLANE names it.

With --sort, the list has the changes of all replicas with the largest values, the largest first. In
JSON and YAML, changes are newest first, or in the order of --sort.`,
		Example: `  # List the newest 20 changes
  moonsail changes

  # Print all details of the newest change
  moonsail changes --number 1 -o yaml

  # List the objects that changed in a namespace
  moonsail changes -n shop -o name

  # List the slowest changes of the last five minutes
  moonsail changes --since 5m --sort total --number 5

  # Follow changes
  moonsail changes --watch`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := strconv.ParseUint(f.namespaces.Namespace, 10, 32); err == nil {
				return terminal.UsageError{Err: fmt.Errorf("--namespace %q: not a namespace: use --number for the number of changes", f.namespaces.Namespace)}
			}
			if f.watch && !f.out.IsTable() {
				return terminal.UsageError{Err: errors.New("--watch: prints a table: leave out --output")}
			}
			if err := f.checkSelection(cmd); err != nil {
				return terminal.UsageError{Err: err}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.client.AddFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "continue, and print each change when it is distributed")
	f.addSelection(cmd)
	f.namespaces.AddFlags(cmd, &f.client, "changes of objects")
	return cmd
}

func (f *changesFlags) run(ctx context.Context, w io.Writer) error {
	if f.watch {
		return f.follow(ctx, w)
	}
	replicas, err := f.client.Replicas(ctx)
	if err != nil {
		return err
	}
	lists := make([]debug.ChangeList, len(replicas))
	err = f.client.Each(ctx, func(i int, r *client.Replica) (err error) {
		lists[i], err = f.newest(ctx, r)
		return err
	})
	if err != nil {
		return err
	}
	list := joinChanges(replicas, lists)
	f.order(&list)
	names := func() []string { return changedObjects(f.rows(&list)) }
	return f.out.Print(w, client.List{Value: list, Names: names, Table: func(w io.Writer) error { return f.print(w, &list) }})
}

// allChanges is a number of changes that asks for all that a control plane keeps.
const allChanges = math.MaxInt32

// newest fetches the newest changes of the namespace within the time of --since. With --sort, it fetches all of them.
func (f *changesFlags) newest(ctx context.Context, r *client.Replica) (debug.ChangeList, error) {
	n, most := f.count, f.count
	if f.sorted() {
		n, most = allChanges, allChanges
	}
	if f.namespaces.Namespace != "" || f.since > 0 {
		n = allChanges // the count is of those that are listed
	}
	more := ""
	if f.out.IsWide() || !f.out.IsTable() {
		more = "&disconnected"
	}
	list, err := fetchChanges(ctx, r, n, 0, more)
	list.Changes = slices.DeleteFunc(list.Changes, func(c changelog.Change) bool { return !f.lists(&c, list.Now) })
	if uint(len(list.Changes)) > most {
		list.Changes = list.Changes[:most]
	}
	return list, err
}

// concerns reports whether a change has an object of the namespace.
func (f *changesFlags) concerns(c *changelog.Change) bool {
	return f.namespaces.Namespace == "" || slices.ContainsFunc(c.Objects, func(o changelog.ChangedObject) bool { return f.namespaces.Has(o.Namespace) })
}

// changedObjects returns the changed objects, in the form that explain takes, each once.
func changedObjects(rows []listedChange) (names []string) {
	for _, c := range rows {
		for _, o := range c.Objects {
			if name := strings.ToLower(string(o.Kind)) + strings.TrimPrefix(o.Key.String(), string(o.Kind)); !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

func fetchChanges(ctx context.Context, r *client.Replica, n uint, after model.Revision, more string) (debug.ChangeList, error) {
	var list debug.ChangeList
	err := r.Get(ctx, fmt.Sprintf("/debug/changes?n=%d&after=%d%s", n, after, more), &list)
	return list, err
}

// changeList is a debug.ChangeList of several control planes.
type changeList struct {
	Now     time.Time      `json:"now"`
	Newest  model.Revision `json:"newest"`  // the highest
	Changes []listedChange `json:"changes"` // newest first, or in the order of --sort
}

type listedChange struct {
	changelog.Change
	ControlPlane string `json:"controlPlane,omitempty"` // empty: there is only one
	// Disconnected are the names of proxies that are disconnected without the change.
	Disconnected []string `json:"disconnected,omitempty"`
}

// joinChanges joins the answers of replicas.
func joinChanges(replicas []*client.Replica, lists []debug.ChangeList) changeList {
	out := changeList{Changes: []listedChange{}}
	for i := range lists {
		if lists[i].Now.After(out.Now) {
			out.Now = lists[i].Now
		}
		out.Newest = max(out.Newest, lists[i].Newest)
		for _, c := range lists[i].Changes {
			out.Changes = append(out.Changes, listedChange{c, planeOf(replicas, i), lists[i].Disconnected[c.Revision]})
		}
	}
	if len(lists) > 1 { // one list has the order of its revisions
		slices.SortStableFunc(out.Changes, func(a, b listedChange) int { return b.Observed.Compare(a.Observed) })
	}
	return out
}

// planeOf returns the name of a replica if there are several.
func planeOf(replicas []*client.Replica, i int) string {
	if len(replicas) < 2 {
		return ""
	}
	return replicas[i].Name
}

// changeColumn is a heading of the table, and its width with --watch, which prints rows before it knows the next ones.
type changeColumn struct {
	heading string
	width   int
}

// changeColumns are those of one control plane. planeColumn comes before the last one if there are several.
var changeColumns = []changeColumn{
	{"REV", 6}, {"TIME", 12}, {"STORE", 7}, {"DERIVE", 7}, {"TRANSLATE", 9}, {"SEND", 7}, {"ACK", 7}, {"TOTAL", 8},
	{"PROXIES", 9}, {"BYTES", 8}, {"OBJECTS", 0},
}

var planeColumn = changeColumn{"CONTROL PLANE", 28}

func columnsOf(several bool) []changeColumn {
	if !several {
		return changeColumns
	}
	return slices.Insert(slices.Clone(changeColumns), len(changeColumns)-1, planeColumn)
}

func (f *changesFlags) print(w io.Writer, list *changeList) error {
	if len(list.Changes) == 0 {
		_, err := fmt.Fprintln(w, f.none())
		return err
	}
	var headings []string
	for _, c := range columnsOf(list.Changes[0].ControlPlane != "") {
		headings = append(headings, c.heading)
	}
	if f.out.IsWide() {
		headings = append(headings, "DISCONNECTED")
	}
	t := terminal.NewTable(headings...)
	style := terminal.StyleFor(w)
	for _, c := range f.rows(list) {
		row := changeRow(style, &c, list.Now)
		if f.out.IsWide() {
			row = append(row, terminal.OrDash(firstNames(c.Disconnected, mostDisconnected)))
		}
		t.Row(row...)
	}
	return t.Write(w)
}

// mostDisconnected bounds the names of disconnected proxies in the row of a change.
const mostDisconnected = 3

// none is the text of an empty list.
func (f *changesFlags) none() string {
	text := "no changes"
	if f.namespaces.Namespace != "" {
		text += " of objects in namespace " + f.namespaces.Namespace
	}
	if f.since > 0 {
		return fmt.Sprintf("%s in the last %s", text, f.since)
	}
	if f.namespaces.Namespace == "" {
		text += " yet"
	}
	return text
}

// listedObjects is the number of objects that a row names.
const listedObjects = 2

func changeRow(style terminal.Style, c *listedChange, now time.Time) []string {
	times := timesAt(&c.Change, now, tableUnit)
	row := []string{revision(&c.Change), c.Observed.Local().Format("15:04:05.000")}
	for _, s := range changelog.Stages {
		row = append(row, times.stage(s))
	}
	row = append(row, style.Bold(times.sum()), changeProxies(style, &c.Change, now), strconv.FormatInt(c.Bytes, 10))
	if c.ControlPlane != "" {
		row = append(row, c.ControlPlane)
	}
	return append(row, c.Summary(listedObjects))
}

// tableUnit is the precision of the table. The stages add up to the total.
const tableUnit = 100 * time.Microsecond

func millis(d time.Duration) string {
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', 1, 64)
}

func revision(c *changelog.Change) string {
	s := strconv.FormatUint(uint64(c.Revision), 10)
	if c.Superseded {
		s += "*"
	}
	return s
}

// changeProxies returns "11/11": in red if a proxy refused the change, in yellow while proxies are awaited.
func changeProxies(style terminal.Style, c *changelog.Change, now time.Time) string {
	s := c.Proxies.String()
	if c.State != changelog.Distributed {
		return style.Warn(fmt.Sprintf("%s (waiting %s)", s, age(now, c.Observed)))
	}
	if c.Proxies.Nacked > 0 {
		return style.Bad(s)
	}
	return s
}

// age returns "3.2s" or "4m10s".
func age(now, since time.Time) string {
	d := max(0, now.Sub(since))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

const (
	pollInterval = 200 * time.Millisecond
	// lateAfter is the age at which a change is printed before it is distributed. It is
	// printed again when it is distributed.
	lateAfter = 2 * time.Second
	// watched bounds the number of changes in one poll.
	watched = 1000
)

// changeWatch remembers what --watch has printed. It does no I/O: polls go in, rows come out.
type changeWatch struct {
	newest model.Revision
	open   map[model.Revision]bool // seen and not distributed; true: printed already
}

// next returns the changes to print now, oldest first.
func (cw *changeWatch) next(list debug.ChangeList) []changelog.Change {
	if list.Newest < cw.newest { // the control plane restarted
		cw.newest = 0
		cw.open = nil
	}
	var out []changelog.Change
	for _, c := range slices.Backward(list.Changes) {
		late, known := cw.open[c.Revision]
		switch {
		case !known && c.Revision <= cw.newest:
			// printed before
		case c.State == changelog.Distributed:
			delete(cw.open, c.Revision)
			out = append(out, c)
		default:
			if !late && list.Now.Sub(c.Observed) >= lateAfter {
				late = true
				out = append(out, c)
			}
			cw.keep(c.Revision, late)
		}
	}
	cw.newest = list.Newest
	cw.forget(list)
	return out
}

func (cw *changeWatch) keep(rev model.Revision, late bool) {
	if cw.open == nil {
		cw.open = map[model.Revision]bool{}
	}
	cw.open[rev] = late
}

// forget drops revisions that the poll asked for and that the control plane no longer has.
func (cw *changeWatch) forget(list debug.ChangeList) {
	for rev := range cw.open {
		if !slices.ContainsFunc(list.Changes, func(c changelog.Change) bool { return c.Revision == rev }) {
			delete(cw.open, rev)
		}
	}
}

// after returns the revision after which the next poll must ask.
func (cw *changeWatch) after() model.Revision {
	after := cw.newest
	for rev := range maps.Keys(cw.open) {
		after = min(after, rev-1)
	}
	return after
}

// follow prints the newest changes, and then further ones until ctx ends.
func (f *changesFlags) follow(ctx context.Context, w io.Writer) error {
	replicas, err := f.client.Replicas(ctx)
	if err != nil {
		return err
	}
	columns := columnsOf(len(replicas) > 1)
	headings := make([]string, len(columns))
	for i, c := range columns {
		headings[i] = terminal.StyleFor(w).Bold(c.heading)
	}
	if err := writeFixed(w, columns, headings); err != nil {
		return err
	}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	watches := make([]changeWatch, len(replicas))
	lists := make([]debug.ChangeList, len(replicas))
	for first := true; ; first = false {
		err := f.client.Each(ctx, func(i int, r *client.Replica) (err error) {
			lists[i] = debug.ChangeList{}
			if first {
				lists[i], err = f.newest(ctx, r)
			} else {
				lists[i], err = watches[i].poll(ctx, r)
			}
			return err
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		for i := range lists {
			if lists[i].Now.IsZero() { // no answer
				continue
			}
			if err := f.writeNext(w, columns, &watches[i], &lists[i], planeOf(replicas, i)); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// writeNext writes the rows of a control plane's changes that were not written as they are.
func (f *changesFlags) writeNext(w io.Writer, columns []changeColumn, cw *changeWatch, list *debug.ChangeList, plane string) error {
	for _, c := range cw.next(*list) {
		if !f.concerns(&c) {
			continue
		}
		row := changeRow(terminal.StyleFor(w), &listedChange{Change: c, ControlPlane: plane}, list.Now)
		if err := writeFixed(w, columns, row); err != nil {
			return err
		}
	}
	return nil
}

// poll fetches the changes after those that were printed.
func (cw *changeWatch) poll(ctx context.Context, r *client.Replica) (debug.ChangeList, error) {
	list, err := fetchChanges(ctx, r, watched, cw.after(), "")
	if err == nil && list.Newest < cw.newest { // restarted: its revisions are lower
		return fetchChanges(ctx, r, watched, 0, "")
	}
	return list, err
}

// writeFixed writes a row with the widths of columns.
func writeFixed(w io.Writer, columns []changeColumn, row []string) error {
	width := make([]int, len(columns))
	for i, c := range columns {
		width[i] = c.width
	}
	return terminal.WriteRow(w, row, width)
}
