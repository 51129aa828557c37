package chaos

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// app is an application: a server of HTTP/1.1 and HTTP/2, one of gRPC and one of TCP, which all answer with its name.
type app struct {
	name  string
	http  *http.Server
	grpc  *grpc.Server
	tcp   net.Listener
	ended sync.WaitGroup
}

// appTimeout bounds how long the servers wait for a request.
const appTimeout = 10 * time.Second

// startApp listens at an address. An external host has HTTP only.
func startApp(name, ip string, all bool) (*app, error) {
	a := &app{name: name}
	p := &http.Protocols{}
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	a.http = &http.Server{Protocols: p, ReadHeaderTimeout: appTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, name)
	})}
	a.grpc = grpc.NewServer()
	a.grpc.RegisterService(&echoService, a)
	err := a.listen(ip, appHTTP, func(l net.Listener) { _ = a.http.Serve(l) })
	if all && err == nil {
		err = a.listen(ip, appGRPC, func(l net.Listener) { _ = a.grpc.Serve(l) })
	}
	if all && err == nil {
		err = a.listen(ip, appTCP, a.accept)
	}
	if err != nil {
		a.stop()
	}
	return a, err
}

func (a *app) listen(ip string, port int, serve func(net.Listener)) error {
	l, err := net.Listen("tcp", at(ip, port)) //nolint:noctx // it takes no time
	if err != nil {
		return err
	}
	if port == appTCP {
		a.tcp = l
	}
	a.ended.Go(func() { serve(l) })
	return nil
}

// accept answers one line on each connection.
func (a *app) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		a.ended.Go(func() {
			defer c.Close()
			if c.SetDeadline(time.Now().Add(appTimeout)) != nil {
				return
			}
			if _, err := bufio.NewReader(c).ReadString('\n'); err == nil {
				fmt.Fprintln(c, a.name)
			}
		})
	}
}

func (a *app) stop() {
	_ = a.http.Close() // nothing is left to answer
	a.grpc.Stop()
	if a.tcp != nil {
		_ = a.tcp.Close()
	}
	a.ended.Wait()
}

// echoMethod is a stream that answers each message with the server's name.
const echoMethod = "/chaos.Echo/Stream"

var echoService = grpc.ServiceDesc{
	ServiceName: "chaos.Echo", HandlerType: (*any)(nil),
	Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: echo}},
}

func echo(srv any, s grpc.ServerStream) error {
	for {
		var m wrapperspb.StringValue
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := s.SendMsg(wrapperspb.String(srv.(*app).name)); err != nil {
			return err
		}
	}
}

// startApps starts the applications of all services and external hosts.
func (l layout) startApps() (out []*app, err error) {
	for _, name := range l.proxies()[l.Clients:] {
		a, err := startApp(name, l.ip(name), true)
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	for _, which := range []string{"a", "b"} {
		a, err := startApp(which, l.externalIP(which), false)
		if err != nil {
			return out, err
		}
		out = append(out, a)
	}
	return out, nil
}
