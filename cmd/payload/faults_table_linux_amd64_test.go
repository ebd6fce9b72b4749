package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// tableWriter writes the table of faults when all tests have ended.
type tableWriter struct{ *testing.M }

func (w tableWriter) Run() int {
	code := w.M.Run()
	if *faultTable == "" {
		return code
	}
	if err := allFaults.write(*faultTable); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// table is docs/faults.md in the making.
type table struct {
	mu   sync.Mutex
	rows []row
}

type row struct {
	fault, where string
	tally
}

// allFaults has the rows of every test of this kind.
var allFaults = &table{}

// add takes a row, and fails the test where something was wrong.
func (a *table) add(t *testing.T, fault, where string, c tally) {
	t.Helper()
	for i, example := range c.examples {
		if i == 5 {
			t.Logf("… and %d more", len(c.examples)-i)
			break
		}
		t.Log(example)
	}
	if c.wrong > 0 {
		t.Errorf("%s, %s: %d of %d came out wrong", where, fault, c.wrong, c.tried)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rows = append(a.rows, row{fault, where, c})
}

// write puts the table, one row a kind of fault, into a file.
func (a *table) write(path string) error {
	var kinds []string
	sum := map[string]*row{}
	for _, r := range a.rows {
		if sum[r.fault] == nil {
			kinds = append(kinds, r.fault)
			sum[r.fault] = &row{fault: r.fault}
		}
		s := sum[r.fault]
		s.tried, s.died, s.errors, s.right = s.tried+r.tried, s.died+r.died, s.errors+r.errors, s.right+r.right
		s.again, s.clear, s.wrong = s.again+r.again, s.clear+r.clear, s.wrong+r.wrong
	}
	slices.Sort(kinds)
	var b strings.Builder
	total := row{fault: "**all**"}
	line := func(r row) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %d | %d | %d | %d |\n", r.fault, r.tried, r.died, r.errors, r.right, r.again, r.clear, r.wrong)
	}
	for _, kind := range kinds {
		s := *sum[kind]
		line(s)
		total.tried, total.died, total.errors, total.right = total.tried+s.tried, total.died+s.died, total.errors+s.errors, total.right+s.right
		total.again, total.clear, total.wrong = total.again+s.again, total.clear+s.clear, total.wrong+s.wrong
	}
	line(total)
	var wheres []string
	for _, r := range a.rows {
		if !slices.Contains(wheres, r.where) {
			wheres = append(wheres, r.where)
		}
	}
	slices.Sort(wheres)
	return os.WriteFile(path, []byte(fmt.Sprintf(tableText, ordinal(*everyFault), b.String(), strings.Join(wheres, "; "))), 0o644)
}

const tableText = `# Faults

Written by ` + "`scripts/faults`" + `, which breaks payload in each of these ways and runs it
again. A step is a system call by which payload or a git below it changes a file or
starts a program; here every %s of them was broken, one a trial.

A trial counts as wrong when a run says that all is well and a file of the tree (or the
lock, the series, the staged payload, the release) is not what it should be, when an
error doesn't say what is the matter, or when half-made files outlive a prune.

| fault | tried | the broken run: died | clear error | finished, right | the next run: right | clear error | wrong |
|---|---|---|---|---|---|---|---|
%s
Broken were: %s.
`

func ordinal(n int) string {
	switch n {
	case 0:
		return "so many"
	case 1:
		return "one"
	}
	return fmt.Sprintf("%dth", n)
}
