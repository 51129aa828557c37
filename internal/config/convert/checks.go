package convert

import (
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"regexp/syntax"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/envoyformat"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/model"
)

// Limits, as Istio's.
const (
	MaxRegex  = 1024 // bytes
	MaxDomain = 255
	maxLabel  = 63
)

// Istio takes upper-case letters in host names too.
var (
	labelPattern     = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	wildLabelPattern = regexp.MustCompile(`^(\*|(\*-?)?[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)$`)
)

// IsLabel reports whether s is a DNS label, in letters of either case.
func IsLabel(s string) bool { return len(s) <= maxLabel && labelPattern.MatchString(s) }

// HostError describes an invalid host name; empty: it is valid. wild allows a wildcard in front.
func HostError(host string, wild bool) string {
	switch {
	case host == "":
		return "is empty; name a host"
	case len(host) > MaxDomain:
		return fmt.Sprintf("%q is longer than %d characters", host, MaxDomain)
	}
	labels := strings.Split(host, ".")
	first := labelPattern
	if wild {
		first = wildLabelPattern
	}
	for i, l := range labels {
		ok := IsLabel(l)
		switch {
		case i == 0 && wild:
			ok = len(l) <= maxLabel && first.MatchString(l)
		case i > 0 && i == len(labels)-1 && l == "":
			ok = true // a trailing dot
		}
		if !ok {
			return hostAdvice(host, l)
		}
	}
	if _, err := strconv.Atoi(labels[len(labels)-1]); err == nil && (len(labels) > 1 || !wild) {
		return fmt.Sprintf("%q is not a host name: its last part cannot be a number", host)
	}
	return ""
}

func hostAdvice(host, label string) string {
	switch {
	case strings.Contains(host, "://"):
		return fmt.Sprintf("%q is a URL; write the host name only", host)
	case strings.Contains(host, ":"):
		return fmt.Sprintf("%q is not a host name; write the port in its field", host)
	case strings.Contains(host, "/"):
		return fmt.Sprintf("%q is not a host name; leave out what follows the \"/\"", host)
	case strings.Contains(label, "*"):
		return fmt.Sprintf("%q is not a host name: a wildcard can only be the first part, as in *.example.com", host)
	case strings.Contains(label, "_"):
		return fmt.Sprintf("%q is not a host name: \"_\" is not allowed, use \"-\"", host)
	}
	return fmt.Sprintf("%q is not a host name: part %q must be letters, digits and '-'", host, label)
}

// CheckHost reports a host name that is none.
func (r *Converter) CheckHost(at problem.Path, host string, wild bool) bool {
	msg, id := HostError(host, wild), code.InvalidHost
	if host == "" {
		id = code.EmptyValue
	}
	switch {
	case msg != "":
		r.Errorf(id, at, "%s", msg)
	case strings.HasSuffix(host, ".") && r.Object.Kind != model.KindService:
		r.Add(code.InvalidHost, problem.SeverityInfo, at, "%q ends with a dot, with which Istio finds no service; leave it out", host).Set(strings.TrimSuffix(host, "."))
	}
	return msg == ""
}

// CheckPort reports whether port is 1 to 65535, and adds an error if it is not.
func (r *Converter) CheckPort(at problem.Path, port uint32) bool {
	if port < 1 || port > 65535 {
		r.Errorf(code.InvalidNumber, at, "%d is not a port; use 1 to 65535", port)
		return false
	}
	return true
}

// Prefix reads an IP address or a CIDR block.
func (r *Converter) Prefix(at problem.Path, s string) (netip.Prefix, bool) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			r.Errorf(code.InvalidFormat, at, "%q is not a CIDR block; write one such as 10.1.0.0/16", s)
		}
		return p, err == nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		r.Errorf(code.InvalidFormat, at, "%q is not an IP address; write one such as 10.1.2.3, or a CIDR block", s)
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// Prefixes reads a list of addresses; those that are wrong are reported and left out.
func (r *Converter) Prefixes(at problem.Path, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		if p, ok := r.Prefix(at.Index(i), s); ok {
			out = append(out, p)
		}
	}
	return out
}

// Duration checks a duration that must be at least a millisecond, and of whole ones.
func (r *Converter) Duration(at problem.Path, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	v := d.AsDuration()
	switch {
	case v < time.Millisecond:
		r.Errorf(code.InvalidDuration, at, "%s is too short; use 1ms or more, or leave it out", v)
	case v%time.Millisecond != 0:
		r.Errorf(code.InvalidDuration, at, "%s is too fine; use whole milliseconds", v)
	}
	return v
}

// OptionalDuration is nil where d is.
func (r *Converter) OptionalDuration(at problem.Path, d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	v := r.Duration(at, d)
	return &v
}

// Percent checks 0 to 100.
func (r *Converter) Percent(at problem.Path, v float64) float64 {
	if v < 0 || v > 100 {
		r.Errorf(code.InvalidNumber, at, "%v is not a percentage; use 0 to 100", v)
	}
	return v
}

// Count checks a number that cannot be negative.
func (r *Converter) Count(at problem.Path, v int32) uint32 {
	if v < 0 {
		r.Errorf(code.InvalidNumber, at, "%d is negative; use 0 or more", v)
		return 0
	}
	return uint32(v)
}

// Regex reports whether Envoy takes an RE2 expression, and adds an error if it does not.
func (r *Converter) Regex(at problem.Path, re string) bool {
	switch {
	case re == "":
		r.Errorf(code.EmptyValue, at, "is empty; write a regular expression, or leave the match out")
	case len(re) > MaxRegex:
		r.Errorf(code.InvalidText, at, "the regular expression has %d characters; %d is the limit", len(re), MaxRegex)
	default:
		return r.RegexProgram(at, re)
	}
	return false
}

// RegexProgram is Regex for an expression of any length: it checks the syntax and the size of the program.
func (r *Converter) RegexProgram(at problem.Path, re string) bool {
	err := envoyformat.CheckRegex(re)
	var syntaxError *syntax.Error
	switch {
	case errors.As(err, &syntaxError):
		r.Errorf(code.InvalidExpression, at, "%v; expressions are RE2's (https://github.com/google/re2/wiki/Syntax)",
			strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	case err != nil:
		r.Errorf(code.InvalidExpression, at, "%v", err)
	}
	return err == nil
}

// Pattern checks a text with wildcards ("*"), which becomes a regular expression for Envoy.
func (r *Converter) Pattern(at problem.Path, text string) {
	r.RegexProgram(at, strings.ReplaceAll(regexp.QuoteMeta(text), `\*`, ".*"))
}

// Protocols are the names that ports of Istio objects may have, in lower case.
var Protocols = map[string]model.Protocol{
	"": model.ProtocolAuto, "tcp": model.ProtocolTCP, "udp": model.ProtocolUDP,
	"http": model.ProtocolHTTP, "http2": model.ProtocolHTTP2, "grpc": model.ProtocolGRPC,
	"grpc-web": model.ProtocolGRPCWeb, "https": model.ProtocolHTTPS, "tls": model.ProtocolTLS,
	"mongo": model.ProtocolMongo, "mysql": model.ProtocolMySQL, "redis": model.ProtocolRedis,
	"http_proxy": model.ProtocolHTTP,
}

// Protocol reads the protocol of a port of an Istio object.
func (r *Converter) Protocol(at problem.Path, s string) model.Protocol {
	p, ok := Protocols[strings.ToLower(s)]
	if !ok {
		r.Errorf(code.UnknownValue, at, "%q is not a protocol; use HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, MYSQL or REDIS", s)
	}
	return p
}

// CheckPortName reports a port name that is not a DNS label.
func (r *Converter) CheckPortName(at problem.Path, name string) {
	switch {
	case name == "":
		r.Errorf(code.MissingField, at, "is missing; name the port, such as \"http\"")
	case !IsLabel(name):
		r.Errorf(code.InvalidName, at, "%q is not a port name: use at most 63 letters, digits and '-'", name)
	}
}

// UnixPrefix begins addresses of Unix sockets.
const UnixPrefix = "unix://"

// CheckUnix reports a path of a Unix socket that is none.
func (r *Converter) CheckUnix(at problem.Path, address string) string {
	p := strings.TrimPrefix(address, UnixPrefix)
	if !strings.HasPrefix(p, "@") && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		r.Errorf(code.InvalidFormat, at, "%q is not a socket; write unix:// and an absolute path, such as unix:///var/run/app.sock", address)
	}
	return p
}

// IsName reports whether s could be an object's name.
func IsName(s string) bool { return s != "" && HostError(s, false) == "" }
