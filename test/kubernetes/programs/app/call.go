package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const defaultTimeout = 10 * time.Second

// caller makes one call. It returns the instance that answered, if it is known, and what it answered. An HTTP status
// other than 200 is an error. header is sent by HTTP only; Host in it is the host of the request.
type caller func(ctx context.Context, header http.Header) (instance, text string, err error)

func callerFor(target string) (caller, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	switch u.Scheme {
	case "http":
		return httpCaller(target, new(http.Protocols)), nil
	case "h2c":
		var only http.Protocols
		only.SetUnencryptedHTTP2(true)
		return httpCaller("http"+strings.TrimPrefix(target, "h2c"), &only), nil
	case "grpc":
		return grpcCaller(u.Host)
	case "tcp":
		return tcpCaller(u.Host), nil
	}
	return nil, fmt.Errorf("invalid URL %q: use http, h2c, grpc or tcp", target)
}

func httpCaller(target string, protocols *http.Protocols) caller {
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	if protocols.UnencryptedHTTP2() {
		transport.Protocols = protocols
	}
	client := &http.Client{Transport: transport}
	return func(ctx context.Context, header http.Header) (string, string, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
		if err != nil {
			return "", "", err
		}
		if header != nil {
			request.Header, request.Host = header.Clone(), header.Get("Host")
		}
		response, err := client.Do(request)
		if err != nil {
			return "", "", err
		}
		defer func() { _ = response.Body.Close() }() // it is only read
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return "", string(body), err
		}
		var a answer
		_ = json.Unmarshal(body, &a) // an answer of Envoy is text
		if response.StatusCode != http.StatusOK {
			flags := response.Header.Get("x-envoy-response-flags")
			return a.Instance, string(body), fmt.Errorf("status %d %s %s", response.StatusCode, flags, strings.TrimSpace(string(body)))
		}
		return a.Instance, string(body), nil
	}
}

func grpcCaller(address string) (caller, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry())
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, _ http.Header) (string, string, error) {
		var out wrapperspb.StringValue
		if err := conn.Invoke(ctx, echoMethod, wrapperspb.String("hello"), &out); err != nil {
			return "", "", err
		}
		name, _, _ := strings.Cut(out.GetValue(), " ")
		return name, out.GetValue(), nil
	}, nil
}

// tcpCaller opens a connection for each call.
func tcpCaller(address string) caller {
	return func(ctx context.Context, _ http.Header) (string, string, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err != nil {
			return "", "", err
		}
		defer func() { _ = conn.Close() }() // all was read
		defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
		if _, err := fmt.Fprintln(conn, "hello"); err != nil {
			return "", "", err
		}
		line, err := bufio.NewReader(conn).ReadString('\n')
		if err != nil {
			return "", line, err
		}
		name, _, _ := strings.Cut(line, " ")
		return name, line, nil
	}
}

// getter makes calls.
type getter struct {
	count, parallel int
	header          http.Header
}

func (g *getter) addHeader(text string) error {
	name, value, ok := strings.Cut(text, ":")
	if !ok {
		return errors.New("use NAME:VALUE")
	}
	g.header.Add(name, strings.TrimSpace(value))
	return nil
}

// run prints a line for each call: the answer, or the error.
func (g *getter) run(ctx context.Context, target string) error {
	call, err := callerFor(target)
	if err != nil {
		return err
	}
	turns := make(chan struct{}, g.count)
	for range g.count {
		turns <- struct{}{}
	}
	close(turns)
	var mu sync.Mutex // guards failed and the output
	failed := 0
	var all sync.WaitGroup
	for range g.parallel {
		all.Go(func() {
			for range turns {
				limited, cancel := context.WithTimeout(ctx, defaultTimeout)
				_, text, err := call(limited, g.header)
				cancel()
				mu.Lock()
				if err != nil {
					failed++
					text = "error: " + err.Error()
				}
				fmt.Println(strings.TrimSpace(text))
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if failed > 0 {
		return fmt.Errorf("%d of %d calls failed", failed, g.count)
	}
	return nil
}
