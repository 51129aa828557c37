package server

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/model"
	"github.com/moonsail/moonsail/internal/xds/ledger"
)

// TestLongMessageIsLoggedShort: a request may have a message of 32 MB.
func TestLongMessageIsLoggedShort(t *testing.T) {
	var log bytes.Buffer
	st := &stream{server: &Server{log: slog.New(slog.NewTextHandler(&log, nil))}, proxy: &model.Proxy{ID: "a"}}
	r := &request{}
	r.Error = &ledger.Error{Message: "first" + strings.Repeat(" word", 1<<20) + " last"}
	st.reject(r)
	require.Less(t, log.Len(), 2000)
	require.Contains(t, log.String(), "first word")
	require.Contains(t, log.String(), "word last")
}
