// Package envoyformat knows Envoy's command operators, such as %PROTOCOL%, so that a format
// that Envoy would refuse is found before it gets there: with it Envoy would refuse all that
// comes in the same message.
package envoyformat

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// operand states whether a substitution takes an argument in parentheses.
type operand uint8

const (
	operandNever operand = iota
	operandMust
	operandMay
)

// substitutions are those of Envoy 1.40 that values of headers and access logs may have, but
// for the ones without argument (plainSubstitutions).
var substitutions = map[string]struct {
	operand operand
	length  bool // may be cut to a length: %REQ(x):10%
}{
	"CEL":                   {operandMust, true},
	"CLUSTER_METADATA":      {operandMust, false},
	"COALESCE":              {operandMust, true},
	"COMMON_DURATION":       {operandMust, false},
	"DYNAMIC_METADATA":      {operandMust, true},
	"ENVIRONMENT":           {operandMust, true},
	"FILTER_STATE":          {operandMust, true},
	"METADATA":              {operandMust, true},
	"QUERY_PARAM":           {operandMust, true},
	"REQ":                   {operandMust, true},
	"REQUEST_HEADER":        {operandMust, true},
	"RESP":                  {operandMust, true},
	"RESPONSE_HEADER":       {operandMust, true},
	"RESPONSE_TRAILER":      {operandMust, true},
	"TRAILER":               {operandMust, true},
	"TYPED_CEL":             {operandMust, true},
	"UPSTREAM_FILTER_STATE": {operandMust, true},
	"UPSTREAM_METADATA":     {operandMust, false},

	"PATH":         {operandMay, true},
	"QUERY_PARAMS": {operandMay, true},

	"DOWNSTREAM_DIRECT_LOCAL_ADDRESS_WITHOUT_PORT":  {operandMay, false},
	"DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT": {operandMay, false},
	"DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT":         {operandMay, false},
	"DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":        {operandMay, false},
	"UPSTREAM_LOCAL_ADDRESS_WITHOUT_PORT":           {operandMay, false},
	"UPSTREAM_REMOTE_ADDRESS_WITHOUT_PORT":          {operandMay, false},
	"DOWNSTREAM_PEER_CERT_V_START":                  {operandMay, false},
	"DOWNSTREAM_PEER_CERT_V_END":                    {operandMay, false},
	"UPSTREAM_PEER_CERT_V_START":                    {operandMay, false},
	"UPSTREAM_PEER_CERT_V_END":                      {operandMay, false},
	"EMIT_TIME":                                     {operandMay, false},
	"EMIT_TIME_LOCAL":                               {operandMay, false},
	"START_TIME":                                    {operandMay, false},
	"START_TIME_LOCAL":                              {operandMay, false},
	"GRPC_STATUS":                                   {operandMay, false},
	"REQUESTED_SERVER_NAME":                         {operandMay, false},
	"RESPONSE_CODE_DETAILS":                         {operandMay, false},
}

// plainSubstitutions take neither argument nor length.
var plainSubstitutions = words(`
	ACCESS_LOG_TYPE BYTES_RECEIVED BYTES_RETRANSMITTED BYTES_SENT CONNECTION_ID CONNECTION_TERMINATION_DETAILS
	CUSTOM_FLAGS DURATION FILTER_CHAIN_NAME GRPC_STATUS_NUMBER HOSTNAME LISTENER_NAME LOCAL_REPLY_BODY
	PACKETS_RETRANSMITTED PROTOCOL REQUEST_DURATION REQUEST_HEADERS_BYTES REQUEST_TX_DURATION RESPONSE_CODE
	RESPONSE_DURATION RESPONSE_FLAGS RESPONSE_FLAGS_LONG RESPONSE_HEADERS_BYTES RESPONSE_TRAILERS_BYTES
	RESPONSE_TX_DURATION ROUNDTRIP_DURATION ROUTE_NAME ROUTE_RESOLUTION_COUNT ROUTE_RESOLUTION_TIME_US SPAN_ID
	STREAM_ID TLS_JA3_FINGERPRINT TLS_JA4_FINGERPRINT TRACE_ID UNIQUE_ID VIRTUAL_CLUSTER_NAME

	DOWNSTREAM_CX_RTT DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED DOWNSTREAM_DECOMPRESSED_HEADER_BYTES_SENT
	DOWNSTREAM_DETECTED_CLOSE_TYPE DOWNSTREAM_DIRECT_LOCAL_ADDRESS DOWNSTREAM_DIRECT_LOCAL_ADDRESS_ENDPOINT_ID
	DOWNSTREAM_DIRECT_LOCAL_PORT DOWNSTREAM_DIRECT_REMOTE_ADDRESS DOWNSTREAM_DIRECT_REMOTE_PORT
	DOWNSTREAM_HANDSHAKE_DURATION DOWNSTREAM_HEADER_BYTES_RECEIVED DOWNSTREAM_HEADER_BYTES_SENT
	DOWNSTREAM_LOCAL_ADDRESS DOWNSTREAM_LOCAL_ADDRESS_ENDPOINT_ID DOWNSTREAM_LOCAL_CLOSE_REASON
	DOWNSTREAM_LOCAL_DNS_SAN DOWNSTREAM_LOCAL_EMAIL_SAN DOWNSTREAM_LOCAL_IP_SAN DOWNSTREAM_LOCAL_OTHERNAME_SAN
	DOWNSTREAM_LOCAL_PORT DOWNSTREAM_LOCAL_SUBJECT DOWNSTREAM_LOCAL_URI_SAN DOWNSTREAM_PEER_CERT
	DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_1 DOWNSTREAM_PEER_CHAIN_FINGERPRINTS_256 DOWNSTREAM_PEER_CHAIN_SERIALS
	DOWNSTREAM_PEER_DNS_SAN DOWNSTREAM_PEER_EMAIL_SAN DOWNSTREAM_PEER_FINGERPRINT_1 DOWNSTREAM_PEER_FINGERPRINT_256
	DOWNSTREAM_PEER_IP_SAN DOWNSTREAM_PEER_ISSUER DOWNSTREAM_PEER_ISSUER_FINGERPRINT_256
	DOWNSTREAM_PEER_ISSUER_SERIAL DOWNSTREAM_PEER_OTHERNAME_SAN DOWNSTREAM_PEER_SERIAL DOWNSTREAM_PEER_SUBJECT
	DOWNSTREAM_PEER_URI_SAN DOWNSTREAM_REMOTE_ADDRESS DOWNSTREAM_REMOTE_PORT DOWNSTREAM_TLS_CIPHER
	DOWNSTREAM_TLS_GROUP DOWNSTREAM_TLS_SESSION_ID DOWNSTREAM_TLS_VERSION DOWNSTREAM_TRANSPORT_FAILURE_REASON
	DOWNSTREAM_WIRE_BYTES_RECEIVED DOWNSTREAM_WIRE_BYTES_SENT

	UPSTREAM_CLUSTER UPSTREAM_CLUSTER_RAW UPSTREAM_CONNECTION_ID UPSTREAM_CONNECTION_IDS_ATTEMPTED
	UPSTREAM_CONNECTION_POOL_READY_DURATION UPSTREAM_DECOMPRESSED_HEADER_BYTES_RECEIVED
	UPSTREAM_DECOMPRESSED_HEADER_BYTES_SENT UPSTREAM_DETECTED_CLOSE_TYPE UPSTREAM_HEADER_BYTES_RECEIVED
	UPSTREAM_HEADER_BYTES_SENT UPSTREAM_HOST UPSTREAM_HOSTS_ATTEMPTED UPSTREAM_HOSTS_ATTEMPTED_WITHOUT_PORT
	UPSTREAM_HOST_NAME UPSTREAM_HOST_NAMES_ATTEMPTED UPSTREAM_HOST_NAMES_ATTEMPTED_WITHOUT_PORT
	UPSTREAM_HOST_NAME_WITHOUT_PORT UPSTREAM_LOCAL_ADDRESS UPSTREAM_LOCAL_CLOSE_REASON UPSTREAM_LOCAL_DNS_SAN
	UPSTREAM_LOCAL_IP_SAN UPSTREAM_LOCAL_PORT UPSTREAM_LOCAL_URI_SAN UPSTREAM_PEER_CERT UPSTREAM_PEER_DNS_SAN
	UPSTREAM_PEER_IP_SAN UPSTREAM_PEER_ISSUER UPSTREAM_PEER_SUBJECT UPSTREAM_PEER_URI_SAN UPSTREAM_PROTOCOL
	UPSTREAM_REMOTE_ADDRESS UPSTREAM_REMOTE_ADDRESS_ENDPOINT_ID UPSTREAM_REMOTE_PORT UPSTREAM_REQUEST_ATTEMPT_COUNT
	UPSTREAM_SERVER_NAME UPSTREAM_TLS_CIPHER UPSTREAM_TLS_GROUP UPSTREAM_TLS_SESSION_ID UPSTREAM_TLS_VERSION
	UPSTREAM_TRANSPORT_FAILURE_REASON UPSTREAM_WIRE_BYTES_RECEIVED UPSTREAM_WIRE_BYTES_SENT
`)

func words(list string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(list) {
		out[w] = true
	}
	return out
}

// substitutionAt is a substitution at the beginning of a text: name, argument, length.
// Arguments may have parentheses, one level deep.
var substitutionAt = regexp.MustCompile(`^%([A-Z0-9_]+)(\([^()]*(?:\([^()]*\)[^()]*)*\))?(:[0-9]+)?%`)

// headerSubstitutions are those that only values of headers may have.
var headerSubstitutions = []string{"PER_REQUEST_STATE"}

// Check checks a value of an access log, a tag or a label with Envoy's substitutions, such as %PROTOCOL%. Two percent
// signs stand for one.
func Check(value string) error { return check(value, nil) }

// CheckHeader checks a value of a header.
func CheckHeader(value string) error { return check(value, headerSubstitutions) }

func check(value string, further []string) error {
	rest := value
	for {
		i := strings.IndexByte(rest, '%')
		if i < 0 {
			return nil
		}
		rest = rest[i:]
		if strings.HasPrefix(rest, "%%") {
			rest = rest[2:]
			continue
		}
		m := substitutionAt.FindStringSubmatch(rest)
		if m == nil {
			return fmt.Errorf("%q: a percent sign that begins no %%SUBSTITUTION%% must be written %%%%", value)
		}
		u := use{name: m[1], argument: strings.TrimSuffix(strings.TrimPrefix(m[2], "("), ")"), parentheses: m[2] != "", length: strings.TrimPrefix(m[3], ":")}
		if err := u.check(further); err != nil {
			return fmt.Errorf("%q: %w", value, err)
		}
		rest = rest[len(m[0]):]
	}
}

// Forms lists all substitutions, in order, so that a test can compare them with Envoy. argument returns an argument for a
// name.
func Forms(argument func(name string) string) []string {
	var out []string
	for name := range plainSubstitutions {
		out = append(out, "%"+name+"%")
	}
	for name, s := range substitutions {
		length := ""
		if s.length {
			length = ":5"
		}
		if s.operand != operandMust {
			out = append(out, "%"+name+length+"%")
		}
		if s.operand != operandNever {
			out = append(out, "%"+name+"("+argument(name)+")"+length+"%")
		}
	}
	slices.Sort(out)
	return out
}

// use is a substitution in a format.
type use struct {
	name        string
	argument    string
	parentheses bool // there is an argument, though it may be empty
	length      string
}

// check checks a use of one of substitutions, or of one of further ones, which need an argument.
func (u *use) check(further []string) error {
	s, known := substitutions[u.name]
	if slices.Contains(further, u.name) {
		known, s.operand = true, operandMust
	}
	switch {
	case !known && !plainSubstitutions[u.name]:
		return fmt.Errorf("the substitution %%%s%% is unknown to Envoy", u.name)
	case s.operand == operandMust && u.argument == "":
		return fmt.Errorf("the substitution needs an argument: %%%s(...)%%", u.name)
	case s.operand == operandNever && u.parentheses:
		return fmt.Errorf("the substitution takes no argument: %%%s%%", u.name)
	case u.length != "" && !s.length:
		return fmt.Errorf("the substitution %%%s%% takes no length", u.name)
	case u.argument != "":
		if err := checkArgument(u.name, u.argument); err != nil {
			return err
		}
	}
	if _, err := strconv.ParseUint(u.length, 10, 64); u.length != "" && err != nil {
		return fmt.Errorf("the length %s of %%%s%% is too large", u.length, u.name)
	}
	return nil
}
