package report

import (
	"fmt"
	"io"
	"strings"
)

// GitHub reads these lines from a job's log and shows them beside the code:
// https://docs.github.com/actions/reference/workflows-and-actions/workflow-commands
var (
	commandValue    = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	commandProperty = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// writeAnnotations writes a workflow command a finding. GitHub shows ten of each
// severity a step, so the worst come first.
func writeAnnotations(w io.Writer, r Report) error {
	command := map[Severity]string{Error: "error", Warning: "warning", Note: "notice"}
	for _, f := range r.Findings {
		var properties []string
		if places := f.ours(); len(places) > 0 {
			properties = append(properties, "file="+commandProperty.Replace(places[0].Path))
			if places[0].Line > 0 {
				properties = append(properties, fmt.Sprintf("line=%d", places[0].Line))
			}
		}
		properties = append(properties, "title="+commandProperty.Replace(f.ID))
		if _, err := fmt.Fprintf(w, "::%s %s::%s\n", command[f.Severity], strings.Join(properties, ","), commandValue.Replace(message(f))); err != nil {
			return err
		}
	}
	return nil
}

// message is what a finding says, without its place.
func message(f Finding) string {
	text := f.Title
	if f.Detail != "" {
		text += ": " + strings.TrimSpace(f.Detail)
	}
	if f.Fix != "" {
		text += "\nfix: " + f.Fix
	}
	return text
}
