package terminal

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newRoot() *cobra.Command {
	root := &cobra.Command{Use: "moonsail"}
	SetUp(root)
	return root
}

func TestErrorForm(t *testing.T) {
	for _, tc := range []struct {
		name   string
		err    error
		status int
		want   string
	}{
		{"plain", errors.New("it broke"), 1, "error: it broke\n"},
		{"all fields", &UserError{What: "no such thing", Where: "a.yaml:3", Next: "make one"}, 1,
			"error: no such thing\n  where: a.yaml:3\n  next:  make one\n"},
		{"hostile names", &UserError{What: "a\x1b[2Jb\nc", Where: "\r", Next: "\u009b2J", Err: nil}, 1, "error: a\\x1b[2Jb\nc\n  where: \\r\n  next:  \\u009b2J\n"},
		{"a hostile cause", errors.New("\x1b]0;x\a"), 1, "error: \\x1b]0;x\\a\n"},
		{"cause", &UserError{What: "cannot read it", Err: errors.New("denied")}, 1, "error: cannot read it: denied\n"},
		{"cause without a problem", &UserError{Where: "here", Err: errors.New("denied")}, 1, "error: denied\n  where: here\n"},
		{"usage", UsageError{Err: errors.New("which one?")}, 2, "error: which one?\n  next:  see 'moonsail fail --help'\n"},
		{"exit status", ExitCode(3), 3, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := newRoot()
			root.AddCommand(&cobra.Command{Use: "fail", RunE: func(*cobra.Command, []string) error { return tc.err }})
			var errOut bytes.Buffer
			root.SetErr(&errOut)
			root.SetArgs([]string{"fail"})
			require.Equal(t, tc.status, Run(t.Context(), root))
			require.Equal(t, tc.want, errOut.String())
		})
	}
	ue := &UserError{What: "no such thing", Where: "a.yaml:3", Next: "make one", Err: errors.New("denied")}
	require.Equal(t, "a.yaml:3: no such thing: denied (make one)", ue.Error())
	require.ErrorIs(t, ue, ue.Err)
}

func TestInterruptPrintsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := newRoot()
	root.AddCommand(&cobra.Command{Use: "idle", RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Context().Err() }})
	var errOut bytes.Buffer
	root.SetErr(&errOut)
	root.SetArgs([]string{"idle"})
	require.Equal(t, ExitInterrupted, Run(ctx, root))
	require.Empty(t, errOut.String())
}

func TestEnvFlags(t *testing.T) {
	type flags struct {
		addr  string
		count int
	}
	for _, tc := range []struct {
		name  string
		args  []string
		env   map[string]string
		want  flags
		fails string
	}{
		{"defaults", nil, nil, flags{"default", 1}, ""},
		{"from the environment", nil, map[string]string{"MOONSAIL_HTTP_ADDR": "a", "COUNT": "5"}, flags{"a", 5}, ""},
		{"flag before environment", []string{"--http-addr", "b"}, map[string]string{"MOONSAIL_HTTP_ADDR": "a"}, flags{"b", 1}, ""},
		{"first variable before second", nil, map[string]string{"COUNT": "5", "NUMBER": "6"}, flags{"default", 5}, ""},
		{"second variable", nil, map[string]string{"NUMBER": "6"}, flags{"default", 6}, ""},
		{"empty variable", nil, map[string]string{"MOONSAIL_HTTP_ADDR": ""}, flags{"default", 1}, ""},
		{"link to a Service", nil, map[string]string{"X_PORT": "tcp://10.0.0.7:9090", "COUNT": "5"}, flags{"default", 5}, ""},
		{"link to a Service before another variable", nil, map[string]string{"X_PORT": "udp://[fd00::7]:9090", "OTHER_PORT": "7"}, flags{"default", 7}, ""},
		{"no link to a Service", nil, map[string]string{"X_PORT": "ftp"}, flags{}, "environment variable X_PORT"},
		{"invalid value", nil, map[string]string{"COUNT": "many"}, flags{}, "environment variable COUNT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var f flags
			cmd := &cobra.Command{Use: "x"}
			cmd.Flags().StringVar(&f.addr, "http-addr", "default", "where")
			cmd.Flags().IntVar(&f.count, "count", 1, "how many")
			EnvFlag(cmd, "count", "X_PORT", "OTHER_PORT", "COUNT", "NUMBER")
			EnvFlags(cmd)
			require.Contains(t, cmd.Flags().FlagUsages(), "[$MOONSAIL_HTTP_ADDR]")
			require.Contains(t, cmd.Flags().FlagUsages(), "[$X_PORT, $OTHER_PORT, $COUNT, $NUMBER]")
			require.NoError(t, cmd.ParseFlags(tc.args))
			err := flagsFromEnv(cmd, func(k string) (string, bool) { v, ok := tc.env[k]; return v, ok })
			if tc.fails != "" {
				require.ErrorContains(t, err, tc.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.want, f)
		})
	}
}

func TestTable(t *testing.T) {
	var b strings.Builder
	table := NewTable("NAME", "STATE", "NOTE")
	painted := Style{colour: true}
	table.Row("reviews", painted.Good("SYNCED"), "a")
	table.Row("é", "-")
	require.NoError(t, table.Write(&b))
	require.Equal(t, "NAME     STATE   NOTE\nreviews  \x1b[32mSYNCED\x1b[0m  a\né        -\n", b.String())
}

// TestHostileCells has cells that a terminal would obey, or that begin a line.
func TestHostileCells(t *testing.T) {
	var b strings.Builder
	table := NewTable("NAME", "STATE")
	table.Row("a\x1b[2J\nb\u202e", Style{colour: true}.Bad("\x1b]0;x\a\xff"))
	require.NoError(t, table.Write(&b))
	require.Equal(t, "NAME               STATE\na\\x1b[2J\\nb\\u202e  \x1b[31m\\x1b]0;x\\a\\xff\x1b[0m\n", b.String())
	require.Equal(t, `é "\`, Escape(`é "\`))
}

func TestNoColourWithoutTerminal(t *testing.T) {
	require.Equal(t, "x", StyleFor(&bytes.Buffer{}).Bad("x"))
	require.False(t, IsTerminal(&bytes.Buffer{}))
}

func TestProgress(t *testing.T) {
	var b bytes.Buffer
	p := newProgress(&b, "fetching", false)
	for s := range 25 {
		p.tick(time.Duration(s) * time.Second)
	}
	p.Update("unpacking")
	p.tick(25 * time.Second)
	p.clear()
	require.Equal(t, "fetching (2s)\nfetching (12s)\nfetching (22s)\nunpacking (25s)\n", b.String())

	b.Reset()
	p = newProgress(&b, "fetching", true)
	p.tick(1 * time.Second)
	require.Empty(t, b.String())
	p.tick(3 * time.Second)
	p.clear()
	require.Equal(t, "\r\x1b[Kfetching 3s\r\x1b[K", b.String())
}

func TestProgressEnds(t *testing.T) {
	var b bytes.Buffer
	p := StartProgress(&b, "quick")
	p.Done()
	require.Empty(t, b.String())
}
