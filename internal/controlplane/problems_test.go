package controlplane

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/diagnose/explain"
)

// TestProblemListsAreIndependent checks that concurrent readers get lists of their own.
func TestProblemListsAreIndependent(t *testing.T) {
	shared := append(make(problem.List, 0, 2), problem.Problem{Message: "source"})
	first := joined(shared, problem.List{{Message: "first"}})
	second := joined(shared, problem.List{{Message: "second"}})
	require.Equal(t, "first", first[1].Message)
	require.Equal(t, "second", second[1].Message)
}

// TestObjectOfBrokenFile checks that all pages agree about an object whose file cannot be read any more.
func TestObjectOfBrokenFile(t *testing.T) {
	o := options(t)
	p := start(t, o)
	file := filepath.Join(o.ConfigDir, "shop.yaml")
	page := func(path string) (int, string) {
		resp, err := http.Get("http://" + p.http + path)
		require.NoError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		return resp.StatusCode, string(body)
	}
	explained := func() *explain.Explanation {
		status, body := page("/debug/explain/Service/shop/cart")
		if status != http.StatusOK {
			return nil
		}
		e := &explain.Explanation{}
		require.NoError(t, json.Unmarshal([]byte(body), e))
		return e
	}
	agree := func(is func(*explain.Explanation) bool, errors string) *explain.Explanation {
		t.Helper()
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			e := explained()
			assert.True(c, e != nil && is(e), "%+v", e)
			_, metrics := page("/metrics")
			assert.Contains(c, metrics, "\nmoonsail_configuration_errors "+errors+"\n")
		}, time.Minute, 10*time.Millisecond)
		return explained()
	}
	whole := agree(func(e *explain.Explanation) bool { return e.Exists && e.Error == nil }, "0")

	require.NoError(t, os.WriteFile(file, []byte(strings.Replace(shopYAML, "10.0.0.1\n", "10.0.0.2\n  ports: [\n", 1)), 0o600))
	e := agree(func(e *explain.Explanation) bool { return e.Error != nil }, "1")
	require.True(t, e.Exists, "it stays in force")
	require.Equal(t, whole.Content, e.Content)
	require.Contains(t, e.Error.Message, "its file is not valid YAML")
	require.Equal(t, file, e.Error.File)
	require.Len(t, e.Problems, 1)
	_, body := page("/debug/problems")
	var list struct{ Problems Problems }
	require.NoError(t, json.Unmarshal([]byte(body), &list))
	require.Len(t, list.Problems.Config, 1, "one for the file")
	require.Equal(t, e.Error.Where(), list.Problems.Config[0].Where())

	require.NoError(t, os.Remove(file))
	e = agree(func(e *explain.Explanation) bool { return !e.Exists }, "0")
	require.Nil(t, e.Error)
	require.Empty(t, e.Problems)
	require.NoError(t, p.end(t))
}
