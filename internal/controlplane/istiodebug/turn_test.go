package istiodebug

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/xds/server"
)

// slow is a reader that takes an answer once it is told to.
type slow struct {
	*httptest.ResponseRecorder
	read chan struct{}
}

func (s slow) Write(b []byte) (int, error) {
	<-s.read
	return s.ResponseRecorder.Write(b)
}

// TestOneAnswerAtATime checks that answers are made in turn, by HTTP and by xDS, and that slow readers do not delay others.
func TestOneAnswerAtATime(t *testing.T) {
	asked, api := make(chan struct{}), make(chan struct{})
	p := &Pages{Source: Source{
		Resources: oneProxy{name: "web-1.shop"}, Proxies: func() []server.ProxyState { return nil },
		Objects: func(context.Context) ([]json.RawMessage, error) {
			close(asked)
			<-api
			return nil, nil
		},
	}}
	reader := slow{httptest.NewRecorder(), make(chan struct{})}
	var first, others sync.WaitGroup
	first.Go(func() { p.serve(reader, "configz") })
	<-asked
	var made atomic.Int32
	for _, q := range []server.Question{
		{TypeURL: typeSyncz}, {TypeURL: typeConfigDump, Names: []string{"web-1.shop"}}, {TypeURL: server.QuestionType, Names: []string{"syncz"}},
	} {
		others.Go(func() {
			_, _ = p.Answer(context.Background(), &q)
			made.Add(1)
		})
	}
	others.Go(func() {
		p.get("syncz")
		made.Add(1)
	})
	require.Never(t, func() bool { return made.Load() > 0 }, 50*time.Millisecond, time.Millisecond, "the API server has not answered yet")

	close(api)
	others.Wait() // the first reader has not read yet
	close(reader.read)
	first.Wait()
	require.Equal(t, http.StatusOK, reader.Code)
	require.JSONEq(t, "[]", reader.Body.String())
	require.Equal(t, "application/json", reader.Header().Get("Content-Type"))
}
