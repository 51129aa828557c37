package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/terminal"
)

// listing are the flags and formats of commands that list, as in kubectl.
var listing = []string{"-n", "-A", "--context", "json", "yaml", "wide", "name", "jsonpath"}

// notListing are the commands with an output format that lack some of them, each with the reason.
var notListing = []struct {
	reason   string
	commands []string
	lacks    []string
}{
	{"about one proxy", []string{
		"proxy-config all", "proxy-config clusters", "proxy-config endpoints", "proxy-config extensions", "proxy-config listeners", "proxy-config log",
		"proxy-config routes", "proxy-config secrets",
	}, []string{"-A"}},
	{"about one proxy; its rows are no list", []string{"proxy-config bootstrap", "proxy-config rootca-compare"}, []string{"-A", "wide", "name"}},
	{"describes one Pod or Service", []string{"experimental authz check", "experimental describe"}, []string{"-A", "wide", "name"}},
	{"one object, call or profile", []string{"explain", "experimental wait", "wait", "why", "profile"}, []string{"-A", "wide", "name", "jsonpath"}},
	{"about the mesh or the control plane", []string{"profile control-plane", "doctor", "version", "experimental version", "compare"}, []string{"-n", "-A", "wide", "name", "jsonpath"}},
	{"messages, which -o json, github and sarif give to programs", []string{"analyze", "validate"}, []string{"wide", "name", "jsonpath"}},
	{"calls, which -o json and github give to programs", []string{"diff"}, []string{"-A", "wide", "name", "jsonpath"}},
	{"revision tags belong to a control plane, of the namespace in -n", []string{"tag list"}, []string{"-A"}},
	{"changes the cluster", []string{"install", "precheck", "experimental precheck", "tag remove", "tag set", "uninstall", "upgrade"}, []string{"-A", "wide", "name", "jsonpath"}},
}

// TestListing checks that commands that list have kubectl's flags and formats.
func TestListing(t *testing.T) {
	lacking := map[string][]string{}
	for _, e := range notListing {
		for _, c := range e.commands {
			lacking["moonsail "+c] = e.lacks
		}
	}
	lists := 0
	walk(NewRootCommand(), func(cmd *cobra.Command) {
		has := listingOf(cmd)
		if has == nil {
			return
		}
		lists++
		var lacks []string
		for _, one := range listing {
			if !slices.Contains(has, one) {
				lacks = append(lacks, one)
			}
		}
		require.Equal(t, lacking[cmd.CommandPath()], lacks, "%s: add what it lacks, or correct its reason", cmd.CommandPath())
		delete(lacking, cmd.CommandPath())
	})
	require.Empty(t, lacking, "commands that do not exist")
	require.Greater(t, lists, 30)
}

// listingOf returns which flags and formats of lists a command has; nil: it has no output format.
func listingOf(cmd *cobra.Command) []string {
	output := cmd.Flags().Lookup("output")
	if output == nil || output.Value.Type() != (&terminal.Output{}).Type() {
		return nil
	}
	var out []string
	for short, name := range map[string]string{"-n": "namespace", "-A": "all-namespaces", "--context": "context"} {
		if f := cmd.Flags().Lookup(name); f != nil && (len(short) > 2 || "-"+f.Shorthand == short) {
			out = append(out, short)
		}
	}
	for _, format := range listing[3:] {
		for _, value := range []string{format, format + "={.x}"} {
			if output.Value.Set(value) == nil {
				out = append(out, format)
				break
			}
		}
	}
	return out
}
