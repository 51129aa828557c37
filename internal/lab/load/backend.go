package load

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"fortio.org/fortio/fhttp"
	"fortio.org/log"
)

// Backend answers requests until its context ends. It is Fortio's echo server, which sends as many bytes as ?size=
// requests. It logs its address.
func Backend(ctx context.Context, addr string, l *slog.Logger) error {
	log.SetLogLevel(log.Error)
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	l.Info(Listening, "addr", ln.Addr().String())
	server := &http.Server{Handler: http.HandlerFunc(fhttp.EchoHandler), ReadHeaderTimeout: time.Minute}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })() // its connections are the lab's
	if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Listening is the message that a backend logs; package child waits for it.
const Listening = "serving requests"
