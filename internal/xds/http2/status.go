package http2

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// Code is a gRPC status code.
type Code uint32

// The codes that this package uses itself, and Unavailable for servers that stop.
const (
	OK                Code = 0
	Unknown           Code = 2
	DeadlineExceeded  Code = 4
	ResourceExhausted Code = 8
	Unimplemented     Code = 12
	Internal          Code = 13
	Unavailable       Code = 14
)

// Status is the status of a stream. The error of a Receiver may be one.
type Status struct {
	Code    Code
	Message string
}

// Error implements error.
func (s *Status) Error() string { return fmt.Sprintf("gRPC status %d: %s", s.Code, s.Message) }

func statusf(code Code, format string, args ...any) *Status {
	return &Status{code, fmt.Sprintf(format, args...)}
}

// statusOf returns the status of an error: nil is OK.
func statusOf(err error) *Status {
	var s *Status
	switch {
	case err == nil:
		return &Status{}
	case errors.As(err, &s):
		return s
	}
	return &Status{Unknown, err.Error()}
}

// maxText is how many bytes of a message are sent, before encoding.
const maxText = 4 << 10

// percentEncode encodes a message as gRPC requires.
func percentEncode(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// parseTimeout parses grpc-timeout: up to eight digits and a unit.
func parseTimeout(s string) (time.Duration, bool) {
	unit, ok := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}[last(s)]
	if !ok || len(s) < 2 || len(s) > 9 {
		return 0, false
	}
	var n int64
	for _, c := range []byte(s[:len(s)-1]) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = 10*n + int64(c-'0')
	}
	if n > int64(longest/unit) {
		return longest, true
	}
	return time.Duration(n) * unit, true
}

// longest is the longest timeout. Longer ones count as no timeout.
const longest = 1 << 62 * time.Nanosecond

func last(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}
