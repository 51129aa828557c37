package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// statusError is an answer that is not 200.
type statusError struct {
	status int
	body   string
}

// Error is the status, and what the body says of the reason.
func (e *statusError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("%d %s", e.status, e.body))
}

const (
	maxAnswer = 1 << 20
	maxReason = 400 // bytes of a body that are kept to say why
)

// ask makes a request and reads the application's answer. Where the status is not 200 the
// error is a *statusError.
func ask(client *http.Client, req *http.Request) (Answer, error) {
	resp, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Answer{}, fmt.Errorf("answer cut off: %w", err)
	}
	var a Answer
	parsed := json.Unmarshal(body, &a) == nil
	switch {
	case resp.StatusCode != http.StatusOK && parsed && a.Error != "":
		return a, &statusError{resp.StatusCode, a.Error}
	case resp.StatusCode != http.StatusOK:
		return a, &statusError{resp.StatusCode, reason(body)}
	case !parsed:
		return a, fmt.Errorf("answer is not an application's: %s", reason(body))
	}
	return a, nil
}

func reason(body []byte) string {
	return string(body[:min(len(body), maxReason)])
}
