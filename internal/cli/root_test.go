package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/moonsail/moonsail/test/clitest"
	"github.com/moonsail/moonsail/test/netns"
)

func TestMain(m *testing.M) {
	netns.Isolate()
	goleak.VerifyTestMain(m)
}

// moonsail runs a command line.
func moonsail(t *testing.T, args ...string) (status int, out, errOut string) {
	t.Helper()
	return clitest.Run(t, NewRootCommand(), args...)
}

func TestRoot(t *testing.T) {
	for _, tc := range []struct {
		args        []string
		status      int
		out, errOut string // parts of them
	}{
		{[]string{}, 0, "Get started:\n  dashboard", ""},
		{[]string{}, 0, "Operate:\n  agent", ""},
		{[]string{"--version"}, 0, "moonsail 0.1.0-dev", ""},
		{[]string{"--help"}, 0, "moonsail serve --config DIR", ""},
		{[]string{"version"}, 0, "client version:         moonsail 0.1.0-dev", ""},
		{[]string{"version", "--client"}, 0, "moonsail 0.1.0-dev", ""},
		{[]string{"version", "--remote=false"}, 0, "moonsail 0.1.0-dev", ""},
		{[]string{"version", "-o", "json"}, 0, `"platform": "`, ""},
		{[]string{"version", "-o", "yaml"}, 0, "platform: ", ""},
		{[]string{"version", "-o", "xml"}, 2, "", "unknown format \"xml\": use table, json or yaml\n  next:  see 'moonsail version --help'"},
		{[]string{"version", "extra"}, 2, "", `unexpected argument "extra": use 'moonsail version [flags]'`},
		{[]string{"changes", "--nonsense"}, 2, "", "unknown flag: --nonsense\n  next:  see 'moonsail changes --help'"},
		{[]string{"changes", "-w", "-o", "json"}, 2, "", "--watch: prints a table: leave out --output"},
		{[]string{"sail"}, 2, "", `unknown command "sail"`},
		{[]string{"completion", "bash"}, 0, "moonsail", ""},
		{[]string{"completion", "bsh"}, 2, "", `unknown command "bsh"`},
		{[]string{"envoy"}, 0, "install", ""},
		{[]string{"envoy", "find"}, 2, "", `unknown command "find"`},
		{[]string{"inject"}, 2, "", "error: --file is missing: use 'moonsail inject -f FILE [flags]'\n  next:  see 'moonsail inject --help'"},
		{[]string{"manifest"}, 2, "", "error: --image is missing: use --image IMAGE, or set the value image or hub\n  next:  see 'moonsail manifest --help'"},
		{[]string{"help", "bogus"}, 2, "", "error: unknown command \"bogus\"\n  next:  see 'moonsail help --help'"},
		{[]string{"help", "chanegs"}, 2, "", `unknown command "chanegs"; did you mean "changes"?`},
		{[]string{"help", "envoy", "which"}, 0, "moonsail envoy which", ""},
		{[]string{"help"}, 0, "Other commands:\n  completion", ""},
		{[]string{"demo", "--rate", "0"}, 2, "", "error: --rate 0: out of range: use 1 to 2000\n  next:  see 'moonsail demo --help'"},
		{[]string{"demo", "--workloads", "1"}, 2, "", "error: --workloads 1: out of range: use 8 to 100\n  next:  see 'moonsail demo --help'"},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--interception-mode", "NONE", "--envoy", "/nonexistent"}, 1, "",
			"error: not an executable file: no such file or directory\n  where: --envoy /nonexistent\n  next:  correct it, or leave it out and run 'moonsail envoy install'\n"},
		{[]string{"serve", "--log-level", "loud"}, 2, "", `--log-level "loud": unknown level: use debug, info, warn or error`},
		{[]string{"serve", "--config", ".", "--http-addr", "", "--xds-plaintext-addr", "15010"}, 1, "", "missing port in address\n  next:  write it as HOST:PORT or :PORT"},
		{[]string{"agent", "--ip", "127.0.0.1"}, 2, "", "the workload has no name"},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--type", "waypoint", "--print-bootstrap"}, 2, "", "use sidecar or router: correct --type"},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--proxy-log-level", "loud"}, 2, "", `invalid log level "loud" of Envoy: use one of trace, debug`},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--proxy-config", "concurrency: x"}, 2, "", `: invalid ProxyConfig: concurrency: must be a whole number, got "x"`},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--proxy-config", "concurency: 1"}, 2, "", `concurency: unknown field; did you mean "concurrency"?`},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--locality", "a/b/c/d", "--print-bootstrap"}, 2, "", `--locality "a/b/c/d" has more than three parts: write region/zone/subzone`},
		{[]string{"agent", "--name", "a", "--ip", "127.0.0.1", "--locality", "a/b/c", "--print-bootstrap"}, 0, "", ""},
		{[]string{"explain"}, 2, "", "KIND/NAME is missing: use 'moonsail explain KIND/NAME [flags]', for example 'moonsail explain "},
		{[]string{"why", "a.shop"}, 2, "", "TO is missing: use 'moonsail why FROM TO [flags]', for example 'moonsail why web-1.shop http://reviews:9080/ratings'"},
		{[]string{"why"}, 2, "", "FROM and TO are missing: use "},
		{[]string{"why", "a.shop", "http://b", "c"}, 2, "", `wrong arguments ["a.shop" "http://b" "c"]: use 'moonsail why `},
		{[]string{"chanegs"}, 2, "", `unknown command "chanegs" for "moonsail"; did you mean "changes"?`},
		{[]string{"pc", "lissteners", "a.shop"}, 2, "", `did you mean "listeners"?`},
		{[]string{"changes", "--wach"}, 2, "", `unknown flag: --wach; did you mean "--watch"?`},
		{[]string{"inject", "-f", "none.yaml"}, 1, "", "name a file of YAML, or - for standard input"},
		{[]string{"analyze", "testdata/nothing"}, 1, "", "give a directory, a file of YAML, or - for standard input"},
		{[]string{"proxy-config", "nonsense", "a.shop", "-o", "json"}, 2, "", `unknown command "nonsense" for "moonsail proxy-config"`},
		{[]string{"envoy", "find", "--force"}, 2, "", `unknown command "find" for "moonsail envoy"`},
		{[]string{"__complete", "changes", "-o", ""}, 0, "table\njson\nyaml", ""},
		{[]string{"__complete", "changes", ""}, 0, ":4", "NoFileComp"},
		{[]string{"__complete", "agent", "--type", ""}, 0, "sidecar\nrouter\n:4", ""},
		{[]string{"__complete", "analyze", "--explain", "MS14"}, 0, "MS1401\t", ""},
		{[]string{"completion", "bash", "--help"}, 0, "apt-get install bash-completion", ""},
		{[]string{"__complete", "analyze", "--level", ""}, 0, "info\nwarning\nerror\n:4", ""},
		{[]string{"changes", "--number", "-1"}, 2, "", `error: --number "-1": not a whole number: use 0 or more` + "\n"},
		{[]string{"wait", "vs/a", "--timeout", "5"}, 2, "", `--timeout "5": not a duration: use a number with a unit, for example 500ms, 30s or 5m` + "\n"},
		{[]string{"agent", "--status-port", "70000"}, 2, "", `--status-port "70000": out of range` + "\n"},
		{[]string{"agent", "--cert-grace-period-ratio", "x"}, 2, "", `--cert-grace-period-ratio "x": not a number` + "\n"},
		{[]string{"agent", "--xds-plaintext=maybe"}, 2, "", `--xds-plaintext "maybe": not a boolean: use true or false` + "\n"},
		{[]string{"agent", "--pod", "testdata/nothing", "--print-bootstrap"}, 1, "", "cannot read it: no such file or directory\n  where: --pod testdata/nothing\n"},
		{[]string{"bug-report", "--address", "127.0.0.1:1", "-f", "/dev/shm/none/x"}, 1, "", "name a file that can be written"},
		{[]string{"why", "a.shop", "http://b", "-H", "c"}, 2, "", `--header "c": use 'name: value'`},
		{[]string{"ps", "--help"}, 0, "moonsail proxies [PROXY]", ""},
	} {
		t.Run(strings.Join(tc.args, " "), func(t *testing.T) {
			status, out, errOut := moonsail(t, tc.args...)
			require.Equal(t, tc.status, status, errOut)
			require.Contains(t, out, tc.out)
			require.Contains(t, errOut, tc.errOut)
			require.NotContains(t, out+errOut, "\x1b", "colours are for terminals")
		})
	}
}

// TestHelp checks that each command has a description and an example with its name.
func TestHelp(t *testing.T) {
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			if sub.Name() == "help" || sub.Name() == "completion" || sub.Hidden {
				continue
			}
			walk(sub)
			if !sub.Runnable() {
				continue
			}
			require.NotEmpty(t, sub.Short, sub.CommandPath())
			require.Contains(t, sub.Example, sub.CommandPath(), "%q has no example", sub.CommandPath())
			checkWidth(t, strings.Fields(sub.CommandPath())[1:])
		}
	}
	root := NewRootCommand()
	root.InitDefaultHelpCmd()
	walk(root)
}

// checkWidth checks that the help of a command fits a terminal of 80 columns, besides examples, which are not wrapped.
func checkWidth(t *testing.T, command []string) {
	t.Helper()
	status, out, _ := moonsail(t, append(command, "--help")...)
	require.Zero(t, status)
	section := ""
	for line := range strings.Lines(out) {
		if line = strings.TrimRight(line, "\n"); strings.HasSuffix(line, ":") && !strings.HasPrefix(line, " ") {
			section = line
		}
		if section != "Examples:" {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 80, "%v: %s", command, line)
		}
	}
}
