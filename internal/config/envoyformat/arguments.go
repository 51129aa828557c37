package envoyformat

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/moonsail/moonsail/internal/config/cel"
)

// arguments are the forms of those that Envoy looks at. Others may be anything but nothing.
var arguments = map[string]*regexp.Regexp{
	"REQ":                   headerArgument,
	"REQUEST_HEADER":        headerArgument,
	"RESP":                  headerArgument,
	"RESPONSE_HEADER":       headerArgument,
	"RESPONSE_TRAILER":      headerArgument,
	"TRAILER":               headerArgument,
	"PATH":                  regexp.MustCompile(`^(WQ|NQ)(:(ORIG|PATH|ORIG_OR_PATH))?$`),
	"QUERY_PARAMS":          regexp.MustCompile(`^(ORIG|DECODED)$`),
	"REQUESTED_SERVER_NAME": regexp.MustCompile(`^(SNI_ONLY|SNI_FIRST|HOST_FIRST)?(:(ORIG|HOST|ORIG_OR_HOST)?)?$`),
	"GRPC_STATUS":           regexp.MustCompile(`^(CAMEL_STRING|SNAKE_STRING|NUMBER)$`),
	"METADATA":              regexp.MustCompile(`^(DYNAMIC|CLUSTER|ROUTE|UPSTREAM_HOST|LISTENER|LISTENER_FILTER_CHAIN|VIRTUAL_HOST)(:.*)?$`),
	"FILTER_STATE":          stateArgument,
	"UPSTREAM_FILTER_STATE": stateArgument,
	"PER_REQUEST_STATE":     regexp.MustCompile(`^[^:]+$`),
	"COMMON_DURATION":       regexp.MustCompile(`^[^:]*:[^:]*(:(ms|us|ns))?$`),
}

var (
	// headerArgument is a header, and one to take where it is not there.
	headerArgument = regexp.MustCompile(`^` + headerName + `(\?` + headerName + `)?$`)
	// stateArgument is a key, and how its value is written.
	stateArgument = regexp.MustCompile(`^[^:]+(:|:PLAIN:?|:TYPED:?|:FIELD:.+)?$`)
	// newline is a newline in the format of a time.
	newline = regexp.MustCompile(`%[-_0^#]*[1-9]*[EO]?n`)
)

const headerName = ":?[-!#$%&'*+.^_`|~0-9A-Za-z]+"

// times are substitutions with the format of a time.
var times = words(`
	START_TIME START_TIME_LOCAL EMIT_TIME EMIT_TIME_LOCAL DOWNSTREAM_PEER_CERT_V_START DOWNSTREAM_PEER_CERT_V_END
	UPSTREAM_PEER_CERT_V_START UPSTREAM_PEER_CERT_V_END
`)

// checkArgument checks an argument that is not empty.
func checkArgument(name, argument string) error {
	switch form := arguments[name]; {
	case form != nil && !form.MatchString(argument):
		return fmt.Errorf("%q is not an argument that Envoy takes for the substitution %%%s%%", argument, name)
	case name == "CEL", name == "TYPED_CEL":
		if err := cel.Check(argument); err != nil {
			return fmt.Errorf("the expression of %%%s(%s)%%: %w", name, argument, err)
		}
	case name == "COALESCE":
		if err := checkCoalesce(argument); err != nil {
			return fmt.Errorf("the argument of %%COALESCE%%: %w", err)
		}
	case times[name] && newline.MatchString(argument):
		return fmt.Errorf("the format %q of %%%s%% has a newline, which Envoy does not take", argument, name)
	}
	return nil
}

// checkCoalesce checks an object with a list of substitutions: names, or objects with command, param and max_length.
func checkCoalesce(text string) error {
	var config struct {
		Operators []json.RawMessage `json:"operators"`
	}
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("%q is not an object with a list of operators: %w", text, err)
	}
	if len(config.Operators) == 0 {
		return fmt.Errorf("%q has no operators", text)
	}
	for i, raw := range config.Operators {
		if err := checkOperator(raw); err != nil {
			return fmt.Errorf("operators[%d]: %w", i, err)
		}
	}
	return nil
}

func checkOperator(raw json.RawMessage) error {
	var name string
	if json.Unmarshal(raw, &name) == nil {
		return (&use{name: name}).check(nil)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil || fields == nil {
		return fmt.Errorf("%s is neither a name nor an object with a command", raw)
	}
	u := use{}
	for field, to := range map[string]*string{"command": &u.name, "param": &u.argument} {
		if value, given := fields[field]; given && (json.Unmarshal(value, to) != nil || string(value) == "null") {
			return fmt.Errorf("%s is not a text: %s", field, value)
		}
	}
	u.parentheses = u.argument != ""
	if value, given := fields["max_length"]; given {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(value)), 10, 64); err != nil || n <= 0 {
			return fmt.Errorf("max_length is not a positive number: %s", value)
		}
		u.length = string(value)
	}
	return u.check(nil)
}
