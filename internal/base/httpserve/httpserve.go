// Package httpserve runs HTTP servers that end with a context.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Serve serves ln until ctx ends or ln fails, with TLS if the server has a TLSConfig. Then it closes ln, waits at most grace for
// requests in progress, cuts off the others, and returns. The end of ctx is not an error.
func Serve(ctx context.Context, server *http.Server, ln net.Listener, grace time.Duration) error {
	serving, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	context.AfterFunc(serving, func() {
		defer close(ended)
		within, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		if server.Shutdown(within) != nil {
			_ = server.Close() // an error about connections that end anyway
		}
	})
	var err error
	if server.TLSConfig != nil {
		err = server.ServeTLS(ln, "", "")
	} else {
		err = server.Serve(ln)
	}
	end()
	<-ended
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
