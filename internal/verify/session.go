package verify

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"payload/internal/manifest"
	"payload/internal/run"
	"payload/internal/verify/tinymodel"
)

// sessions is the runtime half: the program started as it is, then once with
// every variant alone.
type sessions struct {
	kind     kind
	options  Options
	files    []manifest.File
	limits   limits
	model    []byte
	expected tinymodel.Expectations
	res      *Result
	tempIn   string // where temp is made; empty means the system's place

	temp string // real path; holds copies, model and home, and goes at the end
}

const modelFile = "model.gguf"

func (s *sessions) run(ctx context.Context) error {
	defer func() {
		if s.temp != "" {
			removeTemp(s.temp)
		}
	}()
	whole, err := s.prepare()
	if err != nil || whole == "" {
		return err
	}
	if len(s.kind.steps) > 0 {
		return s.walk(ctx, whole)
	}
	if s.kind.questions != nil {
		return s.question(ctx, whole)
	}
	return s.serve(ctx, whole)
}

// prepare makes the folder that everything happens in, with a copy of the
// payload, whose path it gives; empty where the program can't be run.
func (s *sessions) prepare() (whole string, err error) {
	s.res.Runtime = &Runtime{Kind: s.options.Kind, Program: s.options.Program, Variants: []Variant{}, Skipped: []manifest.Skipped{}}
	program := filepath.Join(s.options.Dir, filepath.FromSlash(s.options.Program))
	if info, err := os.Stat(program); s.options.Program == "" || err != nil || info.IsDir() {
		s.fault("program.missing", s.options.Program, fmt.Sprintf("the program %q is not in the payload", s.options.Program), "", s.options.Program)
		return "", nil
	}
	if reason := s.foreign(program); reason != "" {
		s.skip(s.options.Program, reason)
		return "", nil
	}
	temp, err := os.MkdirTemp(s.tempIn, "payload-verify-")
	if err != nil {
		return "", fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	s.temp = temp
	if s.temp, err = filepath.EvalSymlinks(temp); err != nil {
		removeTemp(temp)
		return "", fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	whole = filepath.Join(s.temp, "payload")
	return whole, copyFolder(s.options.Dir, whole, copyFile, nil)
}

// serve is the runtime half for a program that answers requests.
func (s *sessions) serve(ctx context.Context, whole string) (err error) {
	if err := os.WriteFile(filepath.Join(s.temp, modelFile), s.model, 0o600); err != nil {
		return fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	s.res.Runtime.Version, err = s.version(ctx, whole)
	if err != nil {
		return err
	}
	s.compareVersion(s.res.Runtime.Version)
	modules := s.kind.modules(s.files)
	runnable, err := s.verdicts(ctx, whole, modules)
	if err != nil {
		return err
	}
	accelerators, err := s.accelerators(ctx, whole)
	if err != nil {
		return err
	}
	for _, a := range accelerators {
		if _, err := s.session(ctx, whole, modules, plan{backend: a.name, module: a.module, threads: 1, checks: s.kind.device}); err != nil {
			return err
		}
	}
	backend := s.backend()
	best, err := s.session(ctx, whole, modules, plan{backend: backend, threads: 1, checks: s.kind.checks})
	if err != nil {
		return err
	}
	if threads := min(2, runtime.NumCPU()); threads > 1 && best.works {
		if _, err := s.session(ctx, whole, modules, plan{backend: backend, threads: threads, checks: s.kind.threaded}); err != nil {
			return err
		}
	}
	for _, name := range runnable {
		if name == best.name {
			continue // it has just answered, loaded by name
		}
		dir := filepath.Join(s.temp, "only-"+name)
		err := copyFolder(whole, dir, linkFile, func(rel string) bool {
			other := s.kind.variantOf(path.Base(rel))
			return other != "" && other != name
		})
		if err != nil {
			return err
		}
		if _, err := s.session(ctx, dir, modules, plan{only: name, backend: backend, threads: 1, checks: s.kind.checks}); err != nil {
			return err
		}
		removeTemp(dir)
	}
	return nil
}

// foreign tells why this machine can't run the program by its nature; empty
// when it can.
func (s *sessions) foreign(program string) string {
	i := slices.IndexFunc(s.files, func(f manifest.File) bool { return f.Path == s.options.Program })
	if i < 0 || s.files[i].Arch == "" {
		return "" // a link or a script: the system will tell
	}
	format := "Mach-O"
	if o, err := readObject(program); err == nil && o != nil {
		format = "ELF"
	} else if d, err := readDLL(program); err == nil && d != nil {
		format = "PE"
	}
	native := map[string]string{"linux": "ELF", "darwin": "Mach-O", "windows": "PE"}[runtime.GOOS]
	if format == native && slices.Contains(strings.Split(s.files[i].Arch, "+"), runtime.GOARCH) {
		if f := s.files[i].Floor; f != nil && newerThan(f.MacOS, systemVersion()) {
			return fmt.Sprintf("it needs macOS %s, this machine has %s", f.MacOS, systemVersion())
		}
		return ""
	}
	return fmt.Sprintf("it is %s for %s, this machine is %s/%s", format, s.files[i].Arch, runtime.GOOS, runtime.GOARCH)
}

// removeTemp removes a folder of ours. That it stays behind is no fault of the
// payload's, and there is nobody to tell.
func removeTemp(dir string) { _ = os.RemoveAll(dir) }

func (s *sessions) fault(id, what, title, detail string, paths ...string) {
	s.res.Findings = append(s.res.Findings, fault(categoryRuntime, id, what, title, detail, paths...))
}

func (s *sessions) skip(name, reason string) {
	s.res.Runtime.Skipped = append(s.res.Runtime.Skipped, manifest.Skipped{Name: name, Reason: reason})
	s.options.Tell("%s not exercised: %s", name, reason)
}

func (s *sessions) launch(dir string) (launch, error) {
	home, err := os.MkdirTemp(s.temp, "home-")
	if err != nil {
		return launch{}, fmt.Errorf("verifying %s: %w", s.options.Dir, err)
	}
	return launch{
		kind: s.kind, limits: s.limits, dir: dir, program: s.options.Program,
		model: filepath.Join(s.temp, modelFile), home: home, threads: 1,
	}, nil
}

// once runs the program to its end and gives what it printed.
func (s *sessions) once(ctx context.Context, dir string, args, env []string, module string) (*tape, error) {
	l, err := s.launch(dir)
	if err != nil {
		return nil, err
	}
	limited, cancel := context.WithTimeout(ctx, s.limits.probe)
	defer cancel()
	out := &tape{}
	_, err = run.Do(limited, l.command(args, append(slices.Clone(s.kind.env), env...), strings.NewReplacer("{module}", module), out))
	if ctx.Err() != nil {
		return nil, fmt.Errorf("running %s: %w", s.options.Program, context.Cause(ctx))
	}
	return out, err
}

func (s *sessions) version(ctx context.Context, dir string) (string, error) {
	if len(s.kind.version) == 0 {
		return "", nil
	}
	out, err := s.once(ctx, dir, s.kind.version, nil, "")
	if ctx.Err() != nil {
		return "", err
	}
	if err != nil {
		detail := err.Error()
		if out != nil {
			detail += "\n" + out.last(8, s.kind.noise)
		}
		s.fault("runtime.version", s.options.Program, s.options.Program+" can't tell its version", detail, s.options.Program)
		return "", nil
	}
	v := firstGroup(s.kind.versionPattern, out.String())
	if v == "" {
		s.fault("log.missing", "version", s.options.Program+" prints no version", "pattern: "+s.kind.versionPattern.String(), s.options.Program)
	}
	return v, nil
}

// compareVersion makes sure that the program was built from what the manifest
// says: an old checkout builds just as well.
func (s *sessions) compareVersion(version string) {
	components, err := componentsOf(s.options.Dir)
	if err != nil || s.kind.builtFrom == nil || version == "" {
		return // the static half has reported an unreadable manifest
	}
	known := false
	said := s.kind.builtFrom.FindStringSubmatch(version)
	for _, c := range components {
		if c.Commit == "" {
			continue
		}
		known = true
		if said == nil {
			continue
		}
		build, commit := said[s.kind.builtFrom.SubexpIndex("build")], said[s.kind.builtFrom.SubexpIndex("commit")]
		if strings.HasPrefix(c.Commit, commit) && (c.Build == 0 || build == strconv.Itoa(c.Build)) {
			return
		}
	}
	if !known {
		return
	}
	var want []string
	for _, c := range components {
		want = append(want, fmt.Sprintf("%s %s, build %d, commit %s", c.Name, c.Ref, c.Build, c.Commit))
	}
	s.fault("version.wrong", s.options.Program, fmt.Sprintf("%s says that it is %s, which is not what the manifest says", s.options.Program, version),
		manifest.Name+" has "+strings.Join(want, "; "), s.options.Program)
}

// plan is what one start of the program is for.
type plan struct {
	only    string // the variant that the folder is limited to; empty means that the program chooses
	backend string // must do the work
	module  string // the backend's, relative to the payload; empty when the program finds it by itself
	threads int    // for prompts
	checks  []check
}

// outcome is what a session learnt.
type outcome struct {
	name  string // of the variant that was loaded; empty when there are none
	works bool
}

// session starts the program in dir, asks everything, and stops it.
func (s *sessions) session(ctx context.Context, dir string, modules map[string]string, p plan) (outcome, error) {
	l, err := s.launch(dir)
	if err != nil {
		return outcome{}, err
	}
	l.threads = p.threads
	if p.backend != cpuBackend {
		l.extra = s.kind.chosenDevices()
	}
	if p.module != "" {
		module := strings.NewReplacer("{module}", filepath.Join(dir, filepath.FromSlash(p.module)))
		for _, e := range s.kind.probe.env {
			l.extra = append(l.extra, module.Replace(e))
		}
	}
	began := time.Now()
	srv, err := start(ctx, l)
	ready := time.Since(began)
	if ctx.Err() != nil {
		return outcome{}, err
	}
	if srv == nil {
		s.fault("runtime.start", p.only, s.options.Program+" can't be started"+p.words(p.only), err.Error(), s.options.Program)
		return outcome{}, nil
	}
	defer func() { _ = srv.stop() }() // a second stop does nothing
	name := p.only
	if name == "" && p.module == "" {
		name = s.loaded(srv)
	}
	if p.module != "" {
		name = p.backend
	}
	failed := outcome{name: name}
	switch {
	case errors.Is(err, errEnded):
		return failed, s.ended(ctx, l, srv, p, name, "starting")
	case err != nil:
		s.fault("runtime.not-ready", name, s.options.Program+" "+errNotReady.Error()+p.words(name), err.Error()+"\n"+s.lastLines(srv), s.options.Program)
		return failed, nil
	}
	c := newClient(srv.base, srv.name, s.expected, s.limits.request)
	doing, problems := exercise(ctx, p.checks, c, srv)
	if ctx.Err() != nil {
		return failed, fmt.Errorf("asking %s: %w", s.options.Program, context.Cause(ctx))
	}
	requests := int(c.requests.Load())
	s.res.Runtime.Requests += requests
	if !srv.alive() {
		return failed, s.ended(ctx, l, srv, p, name, doing)
	}
	mapped, outside := s.outside(srv.proc.PID(), p.backend)
	problems = append(problems, outside...)
	if err := srv.stop(); errors.Is(err, errStuck) {
		problems = append(problems, problem{
			id: "runtime.stuck", what: "stop", title: s.options.Program + " " + err.Error(),
			detail: fmt.Sprintf("killed after %s\n%s", s.limits.stop, s.lastLines(srv)),
		})
	} else if err != nil {
		return failed, s.ended(ctx, l, srv, p, name, "stopping")
	}
	module, seen := moduleBase(modules, name), s.variantFile(mapped)
	if p.module != "" {
		module, seen = path.Base(p.module), ""
		if slices.Contains(mapped, filepath.Join(dir, filepath.FromSlash(p.module))) {
			seen = module
		}
	}
	lines, bad := assertLog(srv.log.lines(), s.kind.log, p.backend, module, seen) // complete only now
	if p.backend != cpuBackend {
		if idle, found := s.idle(srv.log.lines(), p.backend); found {
			bad = []problem{idle}
		}
	}
	for name, line := range lines {
		lines[name] = strings.ReplaceAll(line, s.temp+"/", "")
	}
	problems = append(problems, bad...)
	for _, x := range problems {
		s.fault(x.id, join(name, x.what), x.title+p.words(name), x.detail, s.options.Program)
	}
	if len(problems) > 0 {
		return failed, nil
	}
	took := time.Since(began).Seconds()
	if p.threads > 1 {
		s.options.Tell("%s answered on %d threads in %.1f s", s.options.Program, p.threads, took)
		return outcome{name, true}, nil
	}
	ran := Variant{Name: name, ReadyMS: ready.Milliseconds(), Requests: requests, PromptTPS: c.promptTPS, DecodeTPS: c.decodeTPS, Log: lines}
	if p.module != "" {
		s.res.Runtime.Backends = append(s.res.Runtime.Backends, ran)
		s.options.Tell("%s", strings.TrimSpace(lines[patternDevice]))
		s.options.Tell("%s", strings.TrimSpace(lines[patternOffloaded]))
	} else {
		ran.Best = p.only == "" && name != ""
		s.res.Runtime.Variants = append(s.res.Runtime.Variants, ran)
	}
	s.options.Tell("%s answered %d requests in %.1f s, prompt %.0f and text %.0f tokens a second",
		strings.TrimSpace(s.options.Program+" "+name), requests, took, c.promptTPS, c.decodeTPS)
	return outcome{name, true}, nil
}

// moduleBase is the file name of a variant's module; empty for no variant.
func moduleBase(modules map[string]string, name string) string {
	if name == "" {
		return ""
	}
	return path.Base(modules[name])
}

// lastLines is the end of the log, without the temporary folder's name.
func (s *sessions) lastLines(srv *server) string {
	return strings.ReplaceAll(srv.log.last(logLines, s.kind.noise), s.temp+"/", "")
}

const logLines = 12

// words are what a session with this plan and the named variant was, for the
// end of a sentence.
func (p plan) words(name string) string {
	switch {
	case p.module != "":
		return " (started with " + p.module + ")"
	case name == "":
		return ""
	}
	return " (variant " + name + ")"
}

// loaded tells from the log, or from its memory, which variant the program
// chose.
func (s *sessions) loaded(srv *server) string {
	for _, p := range s.kind.log {
		i := p.re.SubexpIndex(groupModule)
		if i < 0 {
			continue
		}
		for _, line := range srv.log.lines() {
			if m := p.re.FindStringSubmatch(line); m != nil {
				if name := s.kind.variantOf(filepath.Base(strings.TrimSpace(m[i]))); name != "" {
					return name
				}
			}
		}
	}
	files, err := mappedFiles(srv.proc.PID())
	if err != nil {
		return "" // it has ended, or this system can't tell
	}
	return s.kind.variantOf(s.variantFile(files))
}

// exercise runs the checks until they are through or the program is gone. It
// tells which one came last.
func exercise(ctx context.Context, checks []check, c *client, srv *server) (string, []problem) {
	var all []problem
	last := ""
	for _, ch := range checks {
		last = ch.name
		bad := ch.run(ctx, c)
		all = append(all, fewer(bad)...)
		if slices.ContainsFunc(bad, func(p problem) bool { return p.gone }) {
			srv.settle(ctx)
		}
		if !srv.alive() || ctx.Err() != nil {
			break
		}
	}
	return last, all
}

// maxAlike is how many problems of one kind a check may show. A program that
// says nonsense does so everywhere.
const maxAlike = 3

func fewer(bad []problem) []problem {
	count := map[string]int{}
	var kept []problem
	for _, p := range bad {
		if count[p.id]++; count[p.id] <= maxAlike {
			kept = append(kept, p)
		}
	}
	for i, p := range kept {
		if more := count[p.id] - maxAlike; more > 0 {
			kept[i].detail += fmt.Sprintf("\nand %d more of the kind", more)
			count[p.id] = 0 // told once
		}
	}
	return kept
}

// outside reports files that the program has mapped and that a user's machine
// does not have. A device's driver maps what it likes of the system's.
func (s *sessions) outside(pid int, backend string) (files []string, bad []problem) {
	files, err := mappedFiles(pid)
	if err != nil {
		return nil, []problem{{id: "runtime.maps", what: "maps", title: "what the program has mapped can't be read", detail: err.Error()}}
	}
	sys := platforms["linux"]
	for _, f := range files {
		if strings.HasPrefix(f, s.temp+"/") || sys.allowsMapped(f) || backend != cpuBackend && sys.inFolders(f) {
			continue
		}
		bad = append(bad, problem{
			id: "runtime.mapped-outside", what: path.Base(f), title: "the program has mapped " + f,
			detail: "it lies neither in the payload's copy nor among the declared system files",
		})
	}
	return files, bad
}

// variantFile is the base name of the variant's module among mapped files;
// empty when there is none, or when nobody can tell which of several is used.
func (s *sessions) variantFile(files []string) string {
	found := ""
	for _, f := range files {
		if !strings.HasPrefix(f, s.temp+"/") || s.kind.variantOf(path.Base(f)) == "" {
			continue
		}
		if found != "" && found != path.Base(f) {
			return ""
		}
		found = path.Base(f)
	}
	return found
}
