package inspect

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/moonsail/moonsail/internal/cli/client"
	"github.com/moonsail/moonsail/internal/terminal"
)

// dashboardFlags are the values of the flags of `moonsail dashboard`.
type dashboardFlags struct {
	client  client.ControlPlane
	port    uint16
	browser bool
}

// dashboardPage is the path of the dashboard.
const dashboardPage = "/dashboard"

func newDashboardCommand() *cobra.Command {
	var f dashboardFlags
	cmd := &cobra.Command{
		Use:     "dashboard",
		Aliases: []string{"dash"},
		Short:   "Open the dashboard of the control plane in a browser",
		Long: `Print the address of the dashboard, and open it in a browser. In a cluster, the command forwards a
port of this machine to a Pod of the control plane until it is interrupted. The dashboard shows the
changes of this replica, and the proxies of all.`,
		Example: `  # Open the dashboard
  moonsail dashboard

  # Print the address only, with a fixed port
  moonsail dashboard --browser=false --port 8080`,
		Args: cobra.NoArgs,
		RunE: f.run,
	}
	f.client.AddFlags(cmd)
	cmd.Flags().Uint16Var(&f.port, "port", 0, "`PORT` of this machine to forward from; 0: a free one")
	cmd.Flags().BoolVar(&f.browser, "browser", true, "open a browser")
	return cmd
}

func (f *dashboardFlags) run(cmd *cobra.Command, _ []string) error {
	// Fails early, with a reason, if the page cannot be read.
	if _, err := f.client.Text(cmd.Context(), dashboardPage); err != nil {
		return err
	}
	replicas, err := f.client.Replicas(cmd.Context()) // the one that answered is the first
	if err != nil {
		return err
	}
	r := replicas[0]
	if !r.InCluster() {
		f.open(cmd, r.URL(dashboardPage), r)
		return nil
	}
	var listen net.ListenConfig
	l, err := listen.Listen(cmd.Context(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(f.port))))
	if err != nil {
		return &terminal.UserError{What: "cannot listen", Where: fmt.Sprintf("--port %d", f.port), Err: err, Next: "choose another port, or 0 for a free one"}
	}
	f.open(cmd, "http://"+l.Addr().String()+dashboardPage, r)
	return r.Forward(cmd.Context(), l)
}

// open prints the address, and opens it if wanted. It ignores a browser that does not start.
func (f *dashboardFlags) open(cmd *cobra.Command, url string, r *client.Replica) {
	fmt.Fprintln(cmd.OutOrStdout(), url)
	if r.InCluster() {
		fmt.Fprintf(cmd.ErrOrStderr(), "forwarding to %s; Ctrl-C ends it\n", r)
	}
	if f.browser && terminal.IsTerminal(cmd.OutOrStdout()) {
		_ = openBrowser(cmd.Context(), url) // the user has the address
	}
}

func openBrowser(ctx context.Context, url string) error {
	name := "xdg-open"
	if runtime.GOOS == "darwin" {
		name = "open"
	}
	return exec.CommandContext(ctx, name, url).Start()
}
