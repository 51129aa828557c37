// Package code names the kinds of mistakes in configuration. Each message has a code, which stays the same when its text
// changes: users suppress and look up messages by it.
//
// A code is about one cause with one remedy. Several messages share it if both are the same. Pages explains the codes;
// docs/reference/messages.md and `moonsail analyze --explain` are made from it.
package code

import (
	"slices"
	"strings"
)

// AnnotationSuppress is the annotation of objects whose messages are left out: a list of codes, or * for all.
const AnnotationSuppress = "galley.istio.io/analyze-suppress"

// Code is the code of a message, such as MS1101. A code is never used again for something else.
type Code string

// Codes of documents: what cannot be read, or is not an object.
const (
	InvalidYAML      Code = "MS1001"
	NotAnObject      Code = "MS1002"
	UnknownKind      Code = "MS1003"
	Unreadable       Code = "MS1004"
	DefinedTwice     Code = "MS1005"
	KindNotSupported Code = "MS1006"
	InvalidList      Code = "MS1007"
	PartlyUsed       Code = "MS1008"
	HiddenPolicies   Code = "MS1009"
	NotAmongObjects  Code = "MS1010"
	NotRendered      Code = "MS1011"
	NoSeparator      Code = "MS1012"
)

// Codes of fields, which are the same in all kinds.
const (
	UnknownField      Code = "MS1101"
	WrongType         Code = "MS1102"
	UnknownValue      Code = "MS1103"
	MissingField      Code = "MS1104"
	EmptyValue        Code = "MS1105"
	ExclusiveFields   Code = "MS1106"
	ListedTwice       Code = "MS1107"
	InvalidName       Code = "MS1108"
	InvalidNumber     Code = "MS1109"
	InvalidDuration   Code = "MS1110"
	InvalidFormat     Code = "MS1111"
	InvalidHost       Code = "MS1112"
	InvalidExpression Code = "MS1113"
	InvalidText       Code = "MS1114"
	NotAllowedHere    Code = "MS1115"
	NoEffect          Code = "MS1116"
	NeverMatches      Code = "MS1117"
	Deprecated        Code = "MS1118"
	NotSupported      Code = "MS1119"
	PatchLeftOut      Code = "MS1120"
	PatchUnmatched    Code = "MS1121"
)

// Codes of routes and what they lead to.
const (
	HostNotFound           Code = "MS1201"
	HostNotExported        Code = "MS1202"
	PortNotFound           Code = "MS1203"
	PortAmbiguous          Code = "MS1204"
	SubsetNotFound         Code = "MS1205"
	SubsetWithoutWorkloads Code = "MS1206"
	DelegateNotFound       Code = "MS1207"
	InvalidDelegate        Code = "MS1208"
	HostRoutedTwice        Code = "MS1209"
	RuleNeverUsed          Code = "MS1210"
	MatchOfOtherGateway    Code = "MS1211"
	PathWithoutSlash       Code = "MS1212"
	TryLongerThanTimeout   Code = "MS1213"
	HTTPRoutesOnTCP        Code = "MS1214"
	EgressSelectsNothing   Code = "MS1215"
	RedirectLoop           Code = "MS1216"
	UnsplitAtGateway       Code = "MS1217"
	RuleOutOfReach         Code = "MS1218"
)

// Codes of services and workloads.
const (
	PortWithoutProtocol     Code = "MS1301"
	TwoProtocols            Code = "MS1302"
	TargetPortNotFound      Code = "MS1303"
	SelectorMatchesNothing  Code = "MS1304"
	HostTaken               Code = "MS1305"
	EndpointsWithoutService Code = "MS1306"
	ServiceEntryWithoutPort Code = "MS1307"
	StaticWithoutEndpoints  Code = "MS1308"
	AddressesMissing        Code = "MS1309"
	TargetTwice             Code = "MS1310"
	NamespaceNotFound       Code = "MS1311"
	AddressesExhausted      Code = "MS1312"
	EndpointOnOwnHost       Code = "MS1313"
	PlaintextHTTPS          Code = "MS1314"
)

// Codes of gateways and the Gateway API.
const (
	GatewayNotFound        Code = "MS1401"
	GatewayTakesNoHost     Code = "MS1402"
	GatewayWithoutRouter   Code = "MS1403"
	ServerConflict         Code = "MS1404"
	ParentNotFound         Code = "MS1405"
	RouteRefused           Code = "MS1406"
	BackendNotFound        Code = "MS1407"
	ReferenceGrantMissing  Code = "MS1408"
	ClassNotFound          Code = "MS1409"
	RuleLeadsNowhere       Code = "MS1410"
	GatewayPortUnreachable Code = "MS1411"
	ListenerWithoutRoutes  Code = "MS1412"
)

// Codes of security.
const (
	ConflictingMutualTLS   Code = "MS1501"
	SecretUnusable         Code = "MS1502"
	SecretUnreadable       Code = "MS1503"
	RootNamespaceSelector  Code = "MS1504"
	TokensNotChecked       Code = "MS1505"
	KeysUnavailable        Code = "MS1506"
	ProviderNotFound       Code = "MS1507"
	HTTPConditionOnTCP     Code = "MS1508"
	RuleForEveryCall       Code = "MS1509"
	PortOfServiceInPolicy  Code = "MS1510"
	IngressBehindMutualTLS Code = "MS1511"
	WebhookUntrusted       Code = "MS1512"
	ConflictingProviders   Code = "MS1513"
	TokensNotRequired      Code = "MS1514"
	ServerSpeaksFirst      Code = "MS1515"
)

// Codes of injection.
const (
	InjectionLabelValue     Code = "MS1601"
	InjectionLabelMisplaced Code = "MS1602"
	InjectionLabelConflict  Code = "MS1603"
	UnknownAnnotation       Code = "MS1604"
	InvalidAnnotation       Code = "MS1605"
	MisplacedAnnotation     Code = "MS1606"
	SidecarUser             Code = "MS1607"
	PodResources            Code = "MS1608"
	ResourcesReplaced       Code = "MS1609"
)

// Page explains a code.
type Page struct {
	Code  Code
	Title string
	Cause string // what it means, and what happens
	// Fix is a text. An empty line and a block of code, indented by four spaces, may follow.
	Fix string
	// Example is configuration with the mistake. It is empty if only a running control plane has the message.
	Example string
	// Istio are the codes of istioctl analyze for the same mistake.
	Istio []string
}

// Pages returns the pages of all codes, in their order.
func Pages() []Page {
	out := slices.Concat(documents, fields, routes, services, gateways, security, injection)
	slices.SortFunc(out, func(a, b Page) int { return strings.Compare(string(a.Code), string(b.Code)) })
	return out
}

// PageOf returns the page of a code, which may be written in lower case, or of a code of istioctl analyze.
func PageOf(text string) (p Page, found bool) {
	for _, p := range Pages() {
		if strings.EqualFold(text, string(p.Code)) || slices.ContainsFunc(p.Istio, func(c string) bool { return strings.EqualFold(c, text) }) {
			return p, true
		}
	}
	return Page{}, false
}
