package istio

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/moonsail/moonsail/internal/model"
)

// Limits, as Istio's.
const (
	maxRegex  = 1024 // bytes; stands for RE2's program size
	maxDomain = 255
	maxLabel  = 63
)

// Istio takes upper-case letters in host names too.
var (
	labelPattern     = regexp.MustCompile(`^[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`)
	wildLabelPattern = regexp.MustCompile(`^(\*|(\*-?)?[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])?)$`)
)

func isLabel(s string) bool { return len(s) <= maxLabel && labelPattern.MatchString(s) }

// hostError says what is wrong with a host name; wild allows a wildcard in front.
func hostError(host string, wild bool) string {
	switch {
	case host == "":
		return "is empty; name a host"
	case len(host) > maxDomain:
		return fmt.Sprintf("%q is longer than %d characters", host, maxDomain)
	}
	labels := strings.Split(host, ".")
	first := labelPattern
	if wild {
		first = wildLabelPattern
	}
	for i, l := range labels {
		ok := isLabel(l)
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
		return fmt.Sprintf("%q is not a host name; a port goes into a field of its own", host)
	case strings.Contains(host, "/"):
		return fmt.Sprintf("%q is not a host name; leave out what follows the \"/\"", host)
	case strings.Contains(label, "*"):
		return fmt.Sprintf("%q is not a host name: a wildcard can only be the first part, as in *.example.com", host)
	case strings.Contains(label, "_"):
		return fmt.Sprintf("%q is not a host name: \"_\" is not allowed, use \"-\"", host)
	}
	return fmt.Sprintf("%q is not a host name: part %q must be letters, digits and '-'", host, label)
}

// checkHost reports a host name that is none.
func (r *report) checkHost(at path, host string, wild bool) bool {
	msg := hostError(host, wild)
	if msg != "" {
		r.errorf(at, "%s", msg)
	}
	return msg == ""
}

func (r *report) checkPort(at path, port uint32) bool {
	if port < 1 || port > 65535 {
		r.errorf(at, "%d is not a port; use 1 to 65535", port)
		return false
	}
	return true
}

// prefix reads an IP address or a CIDR block.
func (r *report) prefix(at path, s string) (netip.Prefix, bool) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			r.errorf(at, "%q is not a CIDR block; write one such as 10.1.0.0/16", s)
		}
		return p, err == nil
	}
	a, err := netip.ParseAddr(s)
	if err != nil {
		r.errorf(at, "%q is not an IP address; write one such as 10.1.2.3, or a CIDR block", s)
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(a, a.BitLen()), true
}

// prefixes reads a list of addresses; those that are wrong are reported and left out.
func (r *report) prefixes(at path, list []string) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range list {
		if p, ok := r.prefix(at.i(i), s); ok {
			out = append(out, p)
		}
	}
	return out
}

// parseDuration reads a duration as proto JSON and Kubernetes have it: "1.5s", "2m".
func parseDuration(s string) (time.Duration, error) { return time.ParseDuration(s) }

// duration checks a duration that must be at least a millisecond, and of whole ones.
func (r *report) duration(at path, d *durationpb.Duration) time.Duration {
	if d == nil {
		return 0
	}
	v := d.AsDuration()
	switch {
	case v < time.Millisecond:
		r.errorf(at, "%s is too short; use 1ms or more, or leave it out", v)
	case v%time.Millisecond != 0:
		r.errorf(at, "%s is too fine; use whole milliseconds", v)
	}
	return v
}

// optionalDuration is nil where d is.
func (r *report) optionalDuration(at path, d *durationpb.Duration) *time.Duration {
	if d == nil {
		return nil
	}
	v := r.duration(at, d)
	return &v
}

// percent checks 0 to 100.
func (r *report) percent(at path, v float64) float64 {
	if v < 0 || v > 100 {
		r.errorf(at, "%v is not a percentage; use 0 to 100", v)
	}
	return v
}

// count checks a number that cannot be negative.
func (r *report) count(at path, v int32) uint32 {
	if v < 0 {
		r.errorf(at, "%d is negative; use 0 or more", v)
		return 0
	}
	return uint32(v)
}

// regex checks an RE2 expression.
func (r *report) regex(at path, re string) {
	switch {
	case re == "":
		r.errorf(at, "is empty; write a regular expression, or leave the match out")
	case len(re) > maxRegex:
		r.errorf(at, "the regular expression has %d characters; %d is the limit", len(re), maxRegex)
	default:
		if _, err := regexp.Compile(re); err != nil {
			r.errorf(at, "%v; expressions are RE2's (https://github.com/google/re2/wiki/Syntax)",
				strings.TrimPrefix(err.Error(), "error parsing regexp: "))
		}
	}
}

// protocols are the names that ports of Istio objects may have, in lower case.
var protocols = map[string]model.Protocol{
	"": model.ProtocolAuto, "tcp": model.ProtocolTCP, "udp": model.ProtocolUDP,
	"http": model.ProtocolHTTP, "http2": model.ProtocolHTTP2, "grpc": model.ProtocolGRPC,
	"grpc-web": model.ProtocolGRPCWeb, "https": model.ProtocolHTTPS, "tls": model.ProtocolTLS,
	"mongo": model.ProtocolMongo, "mysql": model.ProtocolMySQL, "redis": model.ProtocolRedis,
	"http_proxy": model.ProtocolHTTP,
}

// protocol reads the protocol of a port of an Istio object.
func (r *report) protocol(at path, s string) model.Protocol {
	p, ok := protocols[strings.ToLower(s)]
	if !ok {
		r.errorf(at, "%q is not a protocol; use HTTP, HTTP2, GRPC, GRPC-WEB, HTTPS, TLS, TCP, MONGO, MYSQL or REDIS", s)
	}
	return p
}

// checkPortName reports a port name that is no DNS label.
func (r *report) checkPortName(at path, name string) {
	switch {
	case name == "":
		r.errorf(at, "is missing; name the port, such as \"http\"")
	case !isLabel(name):
		r.errorf(at, "%q is not a port name: use at most 63 letters, digits and '-'", name)
	}
}

const unixPrefix = "unix://"

// checkUnix reports a path of a Unix socket that is none.
func (r *report) checkUnix(at path, address string) string {
	p := strings.TrimPrefix(address, unixPrefix)
	if !strings.HasPrefix(p, "@") && (!strings.HasPrefix(p, "/") || strings.HasSuffix(p, "/")) {
		r.errorf(at, "%q is not a socket; write unix:// and an absolute path, such as unix:///var/run/app.sock", address)
	}
	return p
}
