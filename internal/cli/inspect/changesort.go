package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/pipeline/changelog"
	"github.com/moonsail/moonsail/internal/terminal"
)

// Values of --sort besides the names of stages.
const (
	sortTime  = "time"
	sortTotal = "total"
	sortBytes = "bytes"
)

// sortKeys are the values of --sort.
func sortKeys() []string {
	keys := []string{sortTime, sortTotal}
	for _, s := range changelog.Stages {
		keys = append(keys, s.String())
	}
	return append(keys, sortBytes)
}

// addSelection adds the flags that choose and order the listed changes.
func (f *changesFlags) addSelection(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.UintVar(&f.count, "number", 20, "list at most `N` changes (with --since, the default is all)")
	fs.DurationVar(&f.since, "since", 0, "list only changes that were observed within this `DURATION`, for example 5m")
	fs.StringVar(&f.sort, "sort", sortTime, "list the N changes with the largest `FIELD`, the largest first: "+strings.Join(sortKeys()[1:], ", ")+"; "+sortTime+": the newest N")
	terminal.Offer(cmd, "sort", sortKeys()...)
}

// checkSelection reports values that do not fit, and sets the number of changes that --since implies.
func (f *changesFlags) checkSelection(cmd *cobra.Command) error {
	switch keys := sortKeys(); {
	case f.since < 0:
		return fmt.Errorf("--since %s: negative: give a duration, for example 5m", f.since)
	case !slices.Contains(keys, f.sort):
		return fmt.Errorf("--sort %q: unknown field: use %s", f.sort, strings.Join(keys, ", "))
	case f.watch && f.sorted():
		return errors.New("--watch: prints changes as they come: leave out --sort")
	}
	if f.since > 0 && !cmd.Flags().Changed("number") {
		f.count = allChanges
	}
	return nil
}

// sorted reports whether changes have another order than that of their time.
func (f *changesFlags) sorted() bool { return f.sort != sortTime }

// lists reports whether a change is among those to list: of the namespace, and not too old.
func (f *changesFlags) lists(c *changelog.Change, now time.Time) bool {
	return f.concerns(c) && (f.since == 0 || now.Sub(c.Observed) <= f.since)
}

// order sorts the changes of all control planes by the field of --sort, and keeps the largest. Equal ones stay newest first.
func (f *changesFlags) order(list *changeList) {
	if !f.sorted() {
		return
	}
	slices.SortStableFunc(list.Changes, func(a, b listedChange) int {
		return cmp.Compare(f.field(&b, list.Now), f.field(&a, list.Now))
	})
	if uint(len(list.Changes)) > f.count {
		list.Changes = list.Changes[:f.count]
	}
}

// field returns the field of --sort. Changes on their way count with the time so far.
func (f *changesFlags) field(c *listedChange, now time.Time) int64 {
	if f.sort == sortBytes {
		return c.Bytes
	}
	times := timesAt(&c.Change, now, time.Microsecond)
	for _, s := range changelog.Stages {
		if s.String() == f.sort {
			return int64(times.stages[s])
		}
	}
	return int64(times.total)
}

// rows returns the changes in the order of the table: the oldest first, or that of --sort.
func (f *changesFlags) rows(list *changeList) []listedChange {
	rows := slices.Clone(list.Changes)
	if !f.sorted() {
		slices.Reverse(rows)
	}
	return rows
}
