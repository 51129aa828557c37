package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/controlplane/debug"
	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
)

// changesFlags are those of "moonsail changes".
type changesFlags struct {
	client debugClient
	out    terminal.Output
	watch  bool
	count  uint
}

// NewChangesCommand is "moonsail changes".
func NewChangesCommand() *cobra.Command {
	var f changesFlags
	cmd := &cobra.Command{
		Use:   "changes",
		Short: "List changes, where their time went, and which proxies have them",
		Long: `Lists the newest changes that the control plane has seen, oldest first. Each row is
one batch of changed objects on its way to the proxies, in milliseconds:

  STORE      from the first event until the store has it
  DERIVE     until what depends on it is derived
  TRANSLATE  until its Envoy resources are encoded
  SEND       until the first response that holds it is on its way
  ACK        until the last proxy that it concerns has answered
  TOTAL      the sum

PROXIES is how many have it, of those that it concerns and that are connected.
A * after the revision: superseded before it was sent, it went out with a newer one.`,
		Example: `  moonsail changes                # the newest 20
  moonsail changes -n 1 -o yaml   # all that is known of the newest
  moonsail changes --watch        # and then each as it is distributed`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.watch && !f.out.IsTable() {
				return terminal.UsageError{Err: errors.New("--watch prints a table: it does not go with --output")}
			}
			return f.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	f.client.addFlags(cmd)
	f.out.AddFlag(cmd)
	cmd.Flags().BoolVarP(&f.watch, "watch", "w", false, "go on, and print each change once it is distributed")
	cmd.Flags().UintVarP(&f.count, "number", "n", 20, "list at most the newest `N`")
	return cmd
}

func (f *changesFlags) run(ctx context.Context, w io.Writer) error {
	list, err := f.fetch(ctx, f.count, 0)
	if err != nil {
		return err
	}
	if !f.watch {
		return f.out.Print(w, list, func(w io.Writer) error { return printChanges(w, list) })
	}
	return f.follow(ctx, w, list)
}

func (f *changesFlags) fetch(ctx context.Context, n uint, after model.Revision) (debug.ChangeList, error) {
	var list debug.ChangeList
	err := f.client.get(ctx, fmt.Sprintf("/debug/changes?n=%d&after=%d", n, after), &list)
	return list, err
}

// changeColumns are the table's headings with the widths that --watch uses, where rows
// are printed before the next ones are known.
var changeColumns = []struct {
	heading string
	width   int
}{
	{"REV", 6}, {"TIME", 12}, {"STORE", 7}, {"DERIVE", 7}, {"TRANSLATE", 9}, {"SEND", 7}, {"ACK", 7}, {"TOTAL", 8},
	{"PROXIES", 9}, {"BYTES", 8}, {"OBJECTS", 0},
}

func printChanges(w io.Writer, list debug.ChangeList) error {
	if len(list.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no changes yet")
		return err
	}
	headings := make([]string, len(changeColumns))
	for i, c := range changeColumns {
		headings[i] = c.heading
	}
	t := terminal.NewTable(headings...)
	style := terminal.StyleFor(w)
	for _, c := range slices.Backward(list.Changes) {
		t.Row(changeRow(style, &c, list.Now)...)
	}
	return t.Write(w)
}

// listedObjects is how many objects a row names.
const listedObjects = 2

func changeRow(style terminal.Style, c *changelog.Change, now time.Time) []string {
	stages, total := c.Timeline.Split(tableUnit)
	row := []string{revision(c), c.Observed.Local().Format("15:04:05.000")}
	for _, s := range changelog.Stages {
		row = append(row, millis(stages[s]))
	}
	return append(row, style.Bold(millis(total)), changeProxies(style, c, now),
		strconv.FormatInt(c.Bytes, 10), c.Summary(listedObjects))
}

// tableUnit is the precision of the table. The stages' numbers add up to the total.
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

// changeProxies is "11/11", red with what was refused, yellow with what is awaited.
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

// age is "3.2s" or "4m10s".
func age(now, since time.Time) string {
	d := max(0, now.Sub(since))
	if d < time.Minute {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
