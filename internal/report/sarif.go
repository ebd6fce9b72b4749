package report

import (
	"encoding/json"
	"io"
	"net/url"
)

// The parts of SARIF 2.1.0 that code scanning reads. Every result needs a place
// in the repository, and a fingerprint by which it stays the same alert when
// lines move. https://docs.oasis-open.org/sarif/sarif/v2.1.0/
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		AutomationDetails struct {
			ID string `json:"id"`
		} `json:"automationDetails"`
		Results    []sarifResult `json:"results"`
		ColumnKind string        `json:"columnKind"`
	}
	sarifDriver struct {
		Name  string      `json:"name"`
		Rules []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID               string    `json:"id"`
		ShortDescription sarifText `json:"shortDescription"`
		Help             sarifText `json:"help"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID       string             `json:"ruleId"`
		RuleIndex    int                `json:"ruleIndex"`
		Level        Severity           `json:"level"`
		Message      sarifText          `json:"message"`
		Locations    []sarifLocation    `json:"locations"`
		Related      []sarifLocation    `json:"relatedLocations,omitempty"`
		Fingerprints map[string]string  `json:"partialFingerprints"`
		Suppressions []sarifSuppression `json:"suppressions,omitempty"`
	}
	sarifLocation struct {
		ID       int `json:"id,omitempty"`
		Physical struct {
			Artifact struct {
				URI string `json:"uri"`
			} `json:"artifactLocation"`
			Region *sarifRegion `json:"region,omitempty"`
		} `json:"physicalLocation"`
	}
	sarifRegion struct {
		StartLine int `json:"startLine"`
	}
	sarifSuppression struct {
		Kind          string `json:"kind"`
		Status        string `json:"status"`
		Justification string `json:"justification"`
	}
)

func writeSARIF(w io.Writer, r Report) error {
	run := sarifRun{ColumnKind: "utf16CodeUnits", Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "payload", Rules: []sarifRule{}}
	// Uploads of one commit are told apart by this: drift must not close
	// the alerts of verify.
	run.AutomationDetails.ID = r.Title + "/"
	index := map[string]int{}
	add := func(f Finding, suppressed ...sarifSuppression) {
		if _, ok := index[f.ID]; !ok {
			index[f.ID] = len(run.Tool.Driver.Rules)
			rule, _ := r.rule(f.ID)
			help := rule.Help
			if help == "" {
				help = rule.Title
			}
			run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{ID: f.ID, ShortDescription: sarifText{rule.Title}, Help: sarifText{help}})
		}
		result := sarifResult{
			RuleID: f.ID, RuleIndex: index[f.ID], Level: f.Severity, Message: sarifText{message(f)},
			Fingerprints: map[string]string{"payloadKey/v1": f.Key}, Suppressions: suppressed,
		}
		places := f.ours()
		if len(places) == 0 {
			places = []Place{{Path: r.Fallback}}
		}
		result.Locations = []sarifLocation{location(places[0], 0)}
		for i, p := range places[1:] {
			result.Related = append(result.Related, location(p, i+1))
		}
		run.Results = append(run.Results, result)
	}
	for _, f := range r.Findings {
		add(f)
	}
	for _, v := range r.Waived {
		add(v.Finding, sarifSuppression{Kind: "external", Status: "accepted", Justification: v.Reason + " (until " + v.Expires + ")"})
	}
	log := sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}}
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(log)
}

func location(p Place, id int) sarifLocation {
	l := sarifLocation{ID: id}
	l.Physical.Artifact.URI = (&url.URL{Path: p.Path}).String()
	if p.Line > 0 {
		l.Physical.Region = &sarifRegion{StartLine: p.Line}
	}
	return l
}
