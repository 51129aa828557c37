package configure

import (
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moonsail/moonsail/internal/config/code"
	"github.com/moonsail/moonsail/internal/config/problem"
	"github.com/moonsail/moonsail/internal/version"
)

// formatSARIF is the Static Analysis Results Interchange Format, version 2.1.0, which code scanning of GitHub and editors read.
const formatSARIF = "sarif"

// Parts of SARIF (https://docs.oasis-open.org/sarif/sarif/v2.1.0/sarif-v2.1.0.html).
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		InformationURI string      `json:"informationUri"`
		Version        string      `json:"version"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		FullDescription  sarifText `json:"fullDescription"`
		Help             sarifText `json:"help"`
		HelpURI          string    `json:"helpUri"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     string          `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifLocation struct {
		Physical *sarifPhysical `json:"physicalLocation,omitempty"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region *sarifRegion `json:"region,omitempty"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
		Kind string `json:"kind"`
	}
)

const (
	projectURI  = "https://github.com/moonsail/moonsail"
	messagesURI = projectURI + "/blob/main/docs/reference/messages.md"
)

// sarifLevels are the levels of severities.
var sarifLevels = map[problem.Severity]string{
	problem.SeverityError: "error", problem.SeverityWarning: "warning", problem.SeverityInfo: "note",
}

// printSARIF writes all problems as one run, with the rules that they belong to.
func printSARIF(w io.Writer, problems problem.List) error {
	run := sarifRun{Results: []sarifResult{}, Tool: sarifTool{sarifDriver{Name: "moonsail", InformationURI: projectURI, Version: version.Get().Version, Rules: []sarifRule{}}}}
	index := map[code.Code]int{}
	for _, p := range code.Pages() {
		if slices.ContainsFunc(problems, func(found problem.Problem) bool { return found.Code == p.Code }) {
			index[p.Code] = len(run.Tool.Driver.Rules)
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{
				ID: string(p.Code), ShortDescription: sarifText{p.Title}, FullDescription: sarifText{p.Cause}, Help: sarifText{p.Fix}, HelpURI: messagesURI + anchor(p.Code),
			})
		}
	}
	for _, p := range problems {
		run.Results = append(run.Results, resultOf(p, index[p.Code]))
	}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

func resultOf(p problem.Problem, rule int) sarifResult {
	text := p.Message
	if p.Field != "" {
		text = p.Field + ": " + text
	}
	var at sarifLocation
	if p.File != "" {
		at.Physical = &sarifPhysical{}
		at.Physical.Artifact.URI = filepath.ToSlash(p.File)
		if p.Line > 0 {
			at.Physical.Region = &sarifRegion{p.Line}
		}
	}
	if p.Object.Name != "" {
		at.Logical = []sarifLogical{{Name: userKey(p.Object).String(), Kind: "object"}}
	}
	return sarifResult{RuleID: string(p.Code), RuleIndex: rule, Level: sarifLevels[p.Severity], Message: sarifText{text}, Locations: []sarifLocation{at}}
}

// anchor is the place of a code in messagesURI.
func anchor(c code.Code) string { return "#" + strings.ToLower(string(c)) }
