// The program cluster runs a real Kubernetes cluster on this machine. Package cluster has its documentation.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/moonsail/moonsail/test/kubernetes/cluster"
)

const usage = `Runs a real Kubernetes cluster on this machine. It needs root.

Usage: cluster [flags] COMMAND

  build                     build what is missing
  up                        build, start a cluster, and run it until Ctrl-C
  down                      stop a cluster, and remove what a killed one left behind
  load ARCHIVE...           import archives of images into each node
  exec NODE COMMAND...      run a command in a node
  kubectl ARGUMENTS...      run kubectl, with access to the cluster
  helm ARGUMENTS...         run helm, with access to the cluster
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	interrupted := ctx.Err() != nil
	stop()
	var exit exitCode
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
	case errors.As(err, &exit) && !interrupted:
		os.Exit(int(exit)) // the command has printed its error
	case errors.Is(err, context.Canceled) || interrupted:
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

type options struct {
	cluster.Options
	source string
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(flags.Output(), usage, "\nFlags:\n"); flags.PrintDefaults() }
	flags.StringVar(&o.Tools.Dir, "dir", ".tools/kubernetes", "`DIR` for what is built, and for the state of clusters")
	flags.StringVar(&o.source, "source", "test/kubernetes", "`DIR` of this module")
	flags.StringVar(&o.Name, "name", "moonsail", "`NAME` of the cluster")
	flags.IntVar(&o.Nodes, "nodes", 2, "`NUMBER` of nodes")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", "bin/kubeconfig", "`FILE` to write; gives access to the cluster")
	if err := flags.Parse(args); err != nil {
		return err
	}
	for _, path := range []*string{&o.Tools.Dir, &o.Kubeconfig, &o.source} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	o.Tools.Source, o.Tools.Log = o.source, os.Stdout
	command := flags.Arg(0)
	if flags.NArg() < 1 {
		flags.Usage()
		return errors.New("no command: use up, for example")
	}
	return o.command(ctx, command, flags.Args()[1:])
}

func (o options) command(ctx context.Context, command string, args []string) error {
	switch command {
	case "build":
		return o.Tools.Build(ctx)
	case "up":
		return o.up(ctx)
	case "down":
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return cluster.Down(ctx, o.Tools, o.Name)
	}
	c, err := cluster.Open(o.Tools, o.Name)
	if err != nil {
		return err
	}
	switch command {
	case "load":
		if len(args) == 0 {
			return errors.New("load: no archive: use dist/image/*.tar, which make image writes")
		}
		return c.Load(ctx, args...)
	case "exec":
		if len(args) < 2 {
			return errors.New("exec: use exec NODE COMMAND, for example exec node1 nft list ruleset")
		}
		cmd, err := c.Exec(ctx, args[0], args[1:]...)
		if err != nil {
			return err
		}
		return attached(cmd)
	case "kubectl", "helm":
		return attached(c.Tool(ctx, command, args...))
	}
	return fmt.Errorf("unknown command %q: use build, up, down, load, exec, kubectl or helm", command)
}

func attached(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitCode(exit.ExitCode())
	}
	return err
}

// exitCode is the error of a command whose output is the user's, too.
type exitCode int

func (e exitCode) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func (o options) up(ctx context.Context) error {
	if err := o.Tools.Build(ctx); err != nil {
		return err
	}
	c, err := cluster.Start(ctx, o.Options)
	if err != nil {
		return err
	}
	fmt.Printf("==> cluster %s is ready: export KUBECONFIG=%s\n    Ctrl-C stops it.\n", o.Name, o.Kubeconfig)
	err = c.Wait(ctx)
	fmt.Println("==> stopping cluster", o.Name)
	return errors.Join(err, c.Stop())
}
