package verify

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"payload/internal/run"
)

// site is where a program was when a signal ended it.
type site struct {
	signal   string
	module   string // path of the mapped file; empty when it was in none
	offset   uint64 // in the module's file
	function string // empty without symbols
	bytes    []byte // of the instruction and what follows
}

func (s site) String() string {
	if s.module == "" {
		return "code that belongs to no file"
	}
	at := fmt.Sprintf("%s+0x%x", filepath.Base(s.module), s.offset)
	if s.function == "" {
		return at
	}
	return s.function + " (" + at + ")"
}

// traceable are the signals whose place tells something: the instruction that
// raised them is the cause. An abort is in the C library, and says why in the
// log.
var traceable = []string{"SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE", "SIGTRAP", "SIGSYS"}

// ended reports a program that ended by itself. After a crash it is started
// once more under the tracer, and asked the same, to learn where it is.
func (s *sessions) ended(ctx context.Context, l launch, srv *server, p plan, name, doing string) error {
	what := join(name, doing)
	var exit *run.ExitError
	if !errors.As(srv.err, &exit) {
		cause := "exit status 0"
		if srv.err != nil {
			cause = srv.err.Error()
		}
		s.fault("runtime.exit", what, fmt.Sprintf("%s ended while %s%s", s.options.Program, during(doing), p.words(name)), cause+"\n"+s.lastLines(srv), s.options.Program)
		return nil
	}
	if exit.Signal == "" {
		s.fault("runtime.exit", what, fmt.Sprintf("%s ended with status %d while %s%s", s.options.Program, exit.Code, during(doing), p.words(name)), s.lastLines(srv), s.options.Program)
		return nil
	}
	title := fmt.Sprintf("%s dies of %s while %s%s", s.options.Program, exit.Signal, during(doing), p.words(name))
	var facts []string
	where := s.options.Program
	if slices.Contains(traceable, exit.Signal) {
		place, err := s.locate(ctx, l, p.checks)
		if ctx.Err() != nil {
			return fmt.Errorf("looking for a crash of %s: %w", s.options.Program, context.Cause(ctx))
		}
		if err != nil {
			facts = append(facts, "the place is unknown: "+err.Error())
		} else {
			title += ", at " + place.String()
			facts = append(facts, fmt.Sprintf("instruction bytes % x", place.bytes))
			if rel, err := filepath.Rel(l.dir, place.module); err == nil && filepath.IsLocal(rel) {
				where = filepath.ToSlash(rel)
			}
		}
	}
	facts = append(facts, "last lines of the log:", s.lastLines(srv))
	s.fault("runtime.crash", join(name, exit.Signal), title, strings.Join(facts, "\n"), where)
	return nil
}

func during(doing string) string {
	switch doing {
	case "starting", "stopping":
		return doing
	}
	return "asked for " + doing
}

var errNoCrash = errors.New("it did not crash again under the tracer")

// locate starts the program under the tracer, asks the same again, and gives
// where it crashes.
func (s *sessions) locate(ctx context.Context, l launch, checks []check) (site, error) {
	l.traced = true
	srv, err := start(ctx, l)
	if srv == nil {
		return site{}, err
	}
	if err == nil {
		c := newClient(srv.base, srv.name, s.expected, s.limits.request)
		exercise(ctx, checks, c, srv)
	}
	_ = srv.stop() // its end is of no interest, where it was is
	if srv.site == nil {
		return site{}, errNoCrash
	}
	return *srv.site, nil
}

// function names the function of an ELF file that the code at a file offset
// belongs to; empty when no symbol covers it.
func function(file string, offset uint64) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	addr, ok := address(f, offset)
	if !ok {
		return ""
	}
	// The full table holds static functions; a stripped file has only the
	// dynamic one.
	for _, table := range []func() ([]elf.Symbol, error){f.Symbols, f.DynamicSymbols} {
		symbols, err := table()
		if err != nil {
			continue
		}
		for _, sym := range symbols {
			if elf.ST_TYPE(sym.Info) == elf.STT_FUNC && addr >= sym.Value && addr < sym.Value+sym.Size {
				return demangle.Filter(sym.Name, demangle.NoClones)
			}
		}
	}
	return ""
}

// address turns a file offset into the file's own virtual address.
func address(f *elf.File, offset uint64) (uint64, bool) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && offset >= p.Off && offset < p.Off+p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}
