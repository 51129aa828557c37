// The program app is the application of the cluster's tests: a server of HTTP/1.1, HTTP/2, gRPC and TCP, and a client
// with a constant load that reports each failed call.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `Usage:

  app serve [flags]      answer calls until SIGTERM
  app load [flags] URL   call at a constant rate until SIGTERM
  app get [flags] URL    call, and print the answer
  app sleep              wait for SIGTERM

URL is http://HOST:PORT/PATH, h2c://HOST:PORT/PATH, grpc://HOST:PORT or tcp://HOST:PORT.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no command\n\n%s", strings.TrimSpace(usage))
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	switch args[0] {
	case "serve":
		s := server{}
		flags.StringVar(&s.http, "http", ":8080", "`ADDRESS` of HTTP/1.1 and HTTP/2 without TLS; empty: none")
		flags.StringVar(&s.grpc, "grpc", ":9000", "`ADDRESS` of gRPC; empty: none")
		flags.StringVar(&s.tcp, "tcp", ":9001", "`ADDRESS` of a server that echoes lines; empty: none")
		flags.StringVar(&s.version, "version", "", "`VERSION` in answers")
		flags.Func("call", "`NAME=URL` to call for each request, with some of its headers; may be repeated", s.addCall)
		flags.DurationVar(&s.callTimeout, "call-timeout", defaultTimeout, "limit of such a call")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return s.run(ctx)
	case "load":
		l := load{}
		flags.Float64Var(&l.rate, "rate", 50, "calls a second")
		flags.DurationVar(&l.timeout, "timeout", defaultTimeout, "limit of a call")
		flags.BoolVar(&l.fresh, "new-connections", false, "open a connection for each call of HTTP/1.1")
		flags.StringVar(&l.report, "report", "127.0.0.1:8090", "`ADDRESS` of /stats and /reset")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if flags.NArg() != 1 {
			return errors.New("load: no URL: use load http://echo:8080/, for example")
		}
		return l.run(ctx, flags.Arg(0))
	case "get":
		g := getter{header: http.Header{}}
		flags.IntVar(&g.count, "n", 1, "`NUMBER` of calls")
		flags.IntVar(&g.parallel, "c", 1, "`NUMBER` of calls at a time")
		flags.Func("H", "`NAME:VALUE` of a header of HTTP; may be repeated", g.addHeader)
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		if flags.NArg() != 1 {
			return errors.New("get: no URL: use get http://echo:8080/, for example")
		}
		return g.run(ctx, flags.Arg(0))
	case "sleep":
		<-ctx.Done()
		return nil
	}
	return fmt.Errorf("unknown command %q: use serve, load, get or sleep", args[0])
}
