package main

import (
	"bytes"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"payload/internal/atomicfile"
	"payload/internal/report"
)

// reportFlags are the flags of every verb whose result is findings: what goes
// to stdout, and the files that hold the same in other forms.
type reportFlags struct {
	format string
	files  []string
}

func (f *reportFlags) add(cmd *cobra.Command, a *app) {
	cmd.Flags().StringVar(&f.format, "format", string(report.Text), "what is printed: `FORMAT` is "+report.Formats())
	cmd.Flags().StringArrayVarP(&f.files, "output", "o", nil, "write the report to `FILE` too, in the form that its name ends in: .sarif, .json, .md, .html, .txt; may be repeated")
	cmd.Flags().BoolVar(&a.json, "json", false, "print JSON, as --format json does")
	cmd.MarkFlagsMutuallyExclusive("format", "json")
}

// check finds a format that can't be written before any work is done.
func (f *reportFlags) check(cmd *cobra.Command, a *app) error {
	format, err := report.ParseFormat(f.format)
	if err != nil {
		return &usageError{err: fmt.Errorf("--format: %w", err), command: cmd.CommandPath()}
	}
	for _, file := range f.files {
		if _, err := report.FormatOf(file); err != nil {
			return &usageError{err: fmt.Errorf("--output: %w", err), command: cmd.CommandPath()}
		}
	}
	if a.json {
		f.format = string(report.JSON)
	}
	a.json = format == report.JSON || a.json // errors are JSON then, too
	return nil
}

// write prints a report and writes its files.
func (f *reportFlags) write(a *app, r report.Report) error {
	return f.writeBy(a, func(w io.Writer, format report.Format) error { return report.Write(w, format, r) })
}

// writeBy is write for a verb that has forms of its own. Files come first: a
// reader of stdout that stops early must not cost them.
func (f *reportFlags) writeBy(a *app, write func(w io.Writer, format report.Format) error) error {
	for _, file := range f.files {
		format, err := report.FormatOf(file)
		if err != nil {
			return err
		}
		var b bytes.Buffer
		if err := write(&b, format); err != nil {
			return err
		}
		if err := atomicfile.Write(file, b.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return write(a.stdout, report.Format(f.format))
}
