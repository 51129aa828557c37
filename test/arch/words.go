package arch

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// A RetiredName is an identifier or a package that had another name once. The vocabulary is
// that of Envoy, Istio, Kubernetes and Go; docs/glossary.md has the few terms of ours.
type RetiredName struct {
	Old, New string
	In       string // the folder where Old is retired; "": everywhere
}

// RetiredNames lists them. Case counts, except that of the first letter. "json:" stands before names of JSON fields.
var RetiredNames = []RetiredName{
	{"ScopeKey", "derive.GroupKey", "internal/pipeline"},
	{"scopeOf", "groupOf", "internal/pipeline/derive"},
	{"RouteConfigShell", "VHDSRouteConfig", ""},
	{"Whereabouts", "distribution.ProxySyncStatus", ""},
	{"survey", "distributionQuery", ""},
	{"owed", "pendingRevisions", "internal/xds/server"},
	{"splitter", "sharder", ""},
	{"KindDeparture", "model.KindDrainNotice", ""},
	{"departed", "disconnected, draining", ""},
	{"Standing", "ResourceStatus", "internal/xds/ledger"},
	{"nearness", "localityUsage", ""},
	{"TakesAway", "RemovesEndpoints", ""},
	{"mend", "salvage", ""},
	{"shape", "schema", "internal/config"},
	{"stranger", "unauthenticated", "internal/xds/http2"},
	{"nudge", "wake", "internal/xds/http2"},
	{"attend", "handleWake", "internal/xds"},
	{"eaten", "unacknowledgedBytes", "internal/xds"},
	{"Heard", "RemoteClosed", "internal/xds/http2"},
	{"yardstick", "baseline", ""},
	{"causeWorld", "what it sets up", ""},
	{"requireRight", "what it checks", ""},
	{"ChangeLog", "changelog.Log", "internal/pipeline"},
	{"sortWhereabouts", "sortSyncStatuses", ""},
	{"json:oldestOwed", "oldestPending", ""},
	{"Outline", "GatewayRefs", "internal/source"},
	{"Outline", "GatewayRefs", "internal/controlplane/status"},
	{"Said", "Set, or a name by meaning", "internal/model"},
	{"Said", "Reply, or a name by meaning", "internal/controlplane/peers"},
	{"Scopes", "ProxyGroups", "internal/controlplane/debug"},
	{"json:scope", "group", ""},
	{"Carrier", "PortServer", "internal/xds"},
	{"unplace", "unlink", "internal/xds/server"},
	{"Unfollowed", "DisableTracking", ""},
	{"Witness", "OnSettled, RecordSettlement", ""},
	{"flying", "inFlight", ""},
	{"patience", "firstRequestTimer", "internal/xds"},
	{"patience", "what it bounds: a timeout, an interval", "internal/security"},
	{"Patient", "RetryOpen", "internal/security"},
	{"tryOut", "verifyIssued", ""},
	{"lasts", "expiry", ""},
	{"shakeHands", "handshake", ""},
	{"budgetMost", "maxBudget", ""},
	{"Board", "status.Tracker", "internal/controlplane/status"},
	{"aside", "suspended", "internal/controlplane"},
	{"across", "crossChecks", "internal/controlplane"},
	{"judges", "writesStatusOf", ""},
	{"spell", "recordSpans", "internal/controlplane/tracing"},
	{"gravity", "stateOrder", ""},
	{"Ill", "doctor.Critical", ""},
	{"Cure", "Advice", "internal/diagnose"},
	{"Blind", "doctor.Unknown", "internal/diagnose"},
	{"TellsPeer", "SendsPeerHeader", ""},
	{"HidesPeer", "RemovesPeerHeader", ""},
	{"TellPlain", "MarksPlaintext", ""},
}

// RetiredPackages are folders that must not come back, with their successors.
var RetiredPackages = map[string]string{
	"view":       "internal/pipeline/ir",
	"istioapi":   "internal/config",
	"departure":  "internal/controlplane/drain",
	"access":     "internal/security/debugauth",
	"outside":    "internal/security/safedial",
	"sidecars":   "internal/controlplane/agents",
	"patch":      "internal/pipeline/envoyfilter",
	"operators":  "internal/config/envoyformat",
	"extension":  "internal/config/envoyext",
	"expression": "internal/config/cel",
	"amendment":  "internal/sidecar/agent/bootstrappatch",
	"admission":  "internal/controlplane/webhook",
}

// retiredInDocs are words that documents do not use: names of before, and words that readers
// had to ask about.
var retiredInDocs = regexp.MustCompile(`\b(istioapi|ScopeKey|RouteConfigShell|KindDeparture|Whereabouts|TakesAway|retell|nearness|telemetry\.ChangeLog|` +
	`units? of derivation|misfits?|yardsticks?|amendments?)\b`)

// bannedPhrases are turns of English that readers had to read twice.
var bannedPhrases = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	"tells? whether", "says so", "say so", "told", "said", "heard",
	"whoever", "whom", "nobody", "somebody",
	"of its own", "goes for", "comes to", "came to nothing", "likewise",
	"(there )?is no [a-z]+",
}, "|") + `)\b`)

// harmless are matches of bannedPhrases that are plain English, as is "there is no".
var harmless = map[string]bool{"is no longer": true, "is no such": true, "is no more": true}

// phrasesIn lists the banned phrases of a text.
func phrasesIn(text string) []string {
	var found []string
	for _, m := range bannedPhrases.FindAllString(strings.Join(strings.Fields(text), " "), -1) {
		if m = strings.ToLower(m); !harmless[m] && !strings.HasPrefix(m, "there is no ") {
			found = append(found, m)
		}
	}
	return found
}

// goFile is what the tests of words read of a Go file.
type goFile struct {
	identifiers []string
	text        []string // string literals, unquoted
}

func parseGo(name string) (*goFile, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", name, err)
	}
	f := &goFile{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			f.identifiers = append(f.identifiers, n.Name)
		case *ast.Field:
			if n.Tag != nil {
				tag := reflect.StructTag(strings.Trim(n.Tag.Value, "`"))
				name, _, _ := strings.Cut(tag.Get("json"), ",")
				f.identifiers = append(f.identifiers, "json:"+name)
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				f.text = append(f.text, text)
			}
		}
		return true
	})
	return f, nil
}
