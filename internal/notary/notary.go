// Package notary has Apple's notary service look at an archive, by its REST
// interface (version 2), from any system. What was submitted is written down
// beside the archive before anything is waited for, so that a run that was ended
// at any moment is gone on with by the submission's id, and nothing is submitted
// twice. Waiting has a bound. What the notary objects to is told by the payload's
// own paths.
//
// The interface: developer.apple.com, "Submitting software for notarization over
// the web" (submissions, an upload to S3 with the credentials that come back, a
// status, a log).
package notary

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"payload/internal/atomicfile"
	"payload/internal/folder"
	"payload/internal/manifest"
)

// Service is how the notary is asked.
type Service struct {
	URL    string // empty: Apple's
	Upload string // where archives go in place of S3; empty: S3
	Key    Key
	Every  time.Duration // between two questions; 0: 30 s
	Bound  time.Duration // of all waiting; 0: an hour
	Say    func(format string, args ...any)
}

const (
	appleURL     = "https://appstoreconnect.apple.com/notary/v2"
	region       = "us-west-2" // of the bucket that Apple names
	defaultEvery = 30 * time.Second
	defaultBound = time.Hour
	askTimeout   = time.Minute
	largestReply = 64 << 20
)

// The notary's words for where a submission stands.
const (
	Accepted   = "Accepted"
	InProgress = "In Progress"
	Invalid    = "Invalid"
	Rejected   = "Rejected"
)

// State is what is written beside an archive.
type State struct {
	Schema  string `json:"schema"`
	Archive string `json:"archive"` // file name
	SHA256  string `json:"sha256"`
	ID      string `json:"id"` // of the submission
	// Uploaded says that the archive arrived. The credentials for it are not kept, so a
	// submission without its archive is given up.
	Uploaded bool   `json:"uploaded"`
	Status   string `json:"status"`
}

const stateSchema = "payload.notary/v1"

// StateFile is where an archive's state is written.
func StateFile(archive string) string { return archive + ".notary.json" }

// Issue is one thing that the notary says of a file.
type Issue struct {
	Severity string `json:"severity"` // "error" or "warning"
	Path     string `json:"path"`     // in the archive
	Message  string `json:"message"`
	Arch     string `json:"architecture"`
	URL      string `json:"docUrl"`
}

// Outcome is what the notary found.
type Outcome struct {
	Archive string  `json:"archive"` // file name
	ID      string  `json:"id"`
	Status  string  `json:"status"`
	Summary string  `json:"summary"`
	Issues  []Issue `json:"issues"`
}

// TimeoutError is a submission that the notary didn't decide in time. It goes
// on there.
type TimeoutError struct {
	Archive, ID string
	Waited      time.Duration
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("notarising %s: the notary has not decided on submission %s after %s", e.Archive, e.ID, e.Waited)
}

// RefusedError is an answer that asking again won't change.
type RefusedError struct {
	Doing  string
	Status int // of HTTP
	Detail string
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("%s: the notary answers %d %s", e.Doing, e.Status, http.StatusText(e.Status))
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	return text
}

// NothingError is a folder in which no notarisation was left open.
type NothingError struct{ Dir string }

func (e *NothingError) Error() string { return "no notarisation was left open in " + e.Dir }

// Open lists the archives in dir whose notarisation has begun and is undecided.
func Open(dir string) ([]string, error) {
	files, err := folder.Glob(dir, "*"+StateFile(""))
	if err != nil {
		return nil, err
	}
	var open []string
	for _, f := range files {
		archive := strings.TrimSuffix(f, StateFile(""))
		s, err := readState(archive)
		if err != nil {
			return nil, err
		}
		if s.Status == InProgress {
			open = append(open, archive)
		}
	}
	if len(open) == 0 {
		return nil, &NothingError{dir}
	}
	return open, nil
}

// Notarise submits an archive (.zip, .dmg), unless its state says that this was
// done, and waits for what the notary says. An archive that changed since is
// submitted anew.
func (s *Service) Notarise(ctx context.Context, archive string) (Outcome, error) {
	name := filepath.Base(archive)
	sum, err := manifest.Digest(archive)
	if err != nil {
		return Outcome{}, fmt.Errorf("notarising %s: %w", name, err)
	}
	state, err := readState(archive)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return Outcome{}, fmt.Errorf("notarising %s: %w", name, err)
	case state.SHA256 != sum:
		s.say("submission %s was of another %s; submitting anew", state.ID, name)
		state = State{}
	case !state.Uploaded:
		s.say("submission %s never got its archive; submitting anew", state.ID)
		state = State{}
	default:
		s.say("going on with submission %s of %s", state.ID, name)
	}
	if state.ID == "" {
		if state, err = s.submit(ctx, archive, sum); err != nil {
			return Outcome{}, err
		}
	}
	return s.wait(ctx, archive, state)
}

// Resume goes on with a submission of an archive by its id, whatever is written
// beside the archive.
func (s *Service) Resume(ctx context.Context, archive, id string) (Outcome, error) {
	sum, err := manifest.Digest(archive)
	if err != nil {
		return Outcome{}, fmt.Errorf("notarising %s: %w", filepath.Base(archive), err)
	}
	state := State{Archive: filepath.Base(archive), SHA256: sum, ID: id, Uploaded: true, Status: InProgress}
	if err := writeState(archive, state); err != nil {
		return Outcome{}, err
	}
	return s.wait(ctx, archive, state)
}

func (s *Service) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(format, args...)
	}
}

func readState(archive string) (State, error) {
	var s State
	data, err := os.ReadFile(StateFile(archive))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil || s.Schema != stateSchema || s.ID == "" {
		return s, fmt.Errorf("%s is not what was written: delete it to submit anew", StateFile(archive))
	}
	return s, nil
}

func writeState(archive string, s State) error {
	s.Schema = stateSchema
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.Write(StateFile(archive), append(data, '\n'), 0o644)
}

// reply is the envelope of every answer.
type reply struct {
	Data struct {
		ID         string `json:"id"`
		Attributes struct {
			Status          string `json:"status"`
			AccessKeyID     string `json:"awsAccessKeyId"`
			SecretAccessKey string `json:"awsSecretAccessKey"`
			SessionToken    string `json:"awsSessionToken"`
			Bucket          string `json:"bucket"`
			Object          string `json:"object"`
			LogURL          string `json:"developerLogUrl"`
		} `json:"attributes"`
	} `json:"data"`
}

func (s *Service) submit(ctx context.Context, archive, sum string) (State, error) {
	name := filepath.Base(archive)
	body, err := json.Marshal(map[string]string{"submissionName": name, "sha256": sum})
	if err != nil {
		return State{}, err
	}
	var r reply
	if err := s.ask(ctx, http.MethodPost, "/submissions", body, "submitting "+name, &r); err != nil {
		return State{}, err
	}
	state := State{Archive: name, SHA256: sum, ID: r.Data.ID, Status: InProgress}
	if state.ID == "" {
		return state, fmt.Errorf("submitting %s: the notary gives no id", name)
	}
	if err := writeState(archive, state); err != nil {
		return state, err
	}
	s.say("submission %s of %s", state.ID, name)
	if err := s.upload(ctx, archive, sum, r); err != nil {
		return state, fmt.Errorf("uploading %s: %w", name, err)
	}
	state.Uploaded = true
	return state, writeState(archive, state)
}

// upload puts the archive where the notary said, with the credentials that it
// gave: one PUT of at most 5 GiB, signed by AWS's version 4.
func (s *Service) upload(ctx context.Context, archive, sum string, r reply) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	a := r.Data.Attributes
	base := "https://" + a.Bucket + ".s3-accelerate.amazonaws.com"
	if s.Upload != "" {
		base = strings.TrimSuffix(s.Upload, "/") + "/" + a.Bucket
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, base+(&url.URL{Path: "/" + a.Object}).EscapedPath(), f)
	if err != nil {
		return err
	}
	req.ContentLength = info.Size()
	req.Header.Set("X-Amz-Content-Sha256", sum)
	credentials := aws.Credentials{AccessKeyID: a.AccessKeyID, SecretAccessKey: a.SecretAccessKey, SessionToken: a.SessionToken}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	if err := signer.SignHTTP(ctx, credentials, req, sum, "s3", region, time.Now()); err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // only for the message
		return fmt.Errorf("the store answers %s: %s", resp.Status, bytes.TrimSpace(text))
	}
	return nil
}

// wait asks until the notary has decided, ctx ends, or the bound is reached. What
// may pass by itself (no connection, a busy server) is waited out.
func (s *Service) wait(ctx context.Context, archive string, state State) (Outcome, error) {
	every, bound := s.Every, s.Bound
	if every == 0 {
		every = defaultEvery
	}
	if bound == 0 {
		bound = defaultBound
	}
	begun := time.Now()
	doing := fmt.Sprintf("asking for submission %s of %s", state.ID, state.Archive)
	for {
		var r reply
		err := s.ask(ctx, http.MethodGet, "/submissions/"+url.PathEscape(state.ID), nil, doing, &r)
		switch status := r.Data.Attributes.Status; {
		case err != nil && !passing(ctx, err):
			return Outcome{}, err
		case err != nil:
			s.say("%v; asking again", err)
		case status != InProgress && status != "":
			return s.decided(ctx, archive, state, status)
		}
		if waited := time.Since(begun); waited+every > bound {
			return Outcome{}, &TimeoutError{state.Archive, state.ID, waited.Round(time.Second)}
		}
		select {
		case <-ctx.Done():
			return Outcome{}, fmt.Errorf("waiting for submission %s of %s: %w", state.ID, state.Archive, context.Cause(ctx))
		case <-time.After(every):
		}
	}
}

// passing says whether a failed question may be answered later.
func passing(ctx context.Context, err error) bool {
	var refused *RefusedError
	if errors.As(err, &refused) {
		return refused.Status >= 500 || refused.Status == http.StatusTooManyRequests
	}
	return ctx.Err() == nil && errors.As(err, new(*url.Error))
}

// decided fetches the log, keeps it beside the archive, and writes down the end.
func (s *Service) decided(ctx context.Context, archive string, state State, status string) (Outcome, error) {
	out := Outcome{Archive: state.Archive, ID: state.ID, Status: status, Issues: []Issue{}}
	var r reply
	doing := fmt.Sprintf("asking for the log of submission %s", state.ID)
	if err := s.ask(ctx, http.MethodGet, "/submissions/"+url.PathEscape(state.ID)+"/logs", nil, doing, &r); err != nil {
		return out, err
	}
	log, err := fetch(ctx, r.Data.Attributes.LogURL)
	if err != nil {
		return out, fmt.Errorf("%s: %w", doing, err)
	}
	if err := atomicfile.Write(archive+".notary-log.json", log, 0o644); err != nil {
		return out, err
	}
	var found struct {
		Summary string  `json:"statusSummary"`
		Issues  []Issue `json:"issues"`
	}
	if err := json.Unmarshal(log, &found); err != nil {
		return out, fmt.Errorf("reading the log of submission %s: %w", state.ID, err)
	}
	out.Summary = found.Summary
	for _, i := range found.Issues {
		i.Path = inArchive(state.Archive, i.Path)
		out.Issues = append(out.Issues, i)
	}
	state.Status = status
	return out, writeState(archive, state)
}

// inArchive cuts the archive's name off a path of the log.
func inArchive(archive, logged string) string {
	p := path.Clean(logged)
	if rest, ok := strings.CutPrefix(p, archive+"/"); ok {
		return rest
	}
	if rest, ok := strings.CutPrefix(p, strings.TrimSuffix(archive, path.Ext(archive))+"/"); ok {
		return rest
	}
	return p
}

// fetch gets what needs no token: a signed address.
func fetch(ctx context.Context, address string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // only read
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, largestReply))
}

func (s *Service) ask(ctx context.Context, method, where string, body []byte, doing string, out *reply) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	base := s.URL
	if base == "" {
		base = appleURL
	}
	token, err := s.Key.token(time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(base, "/")+where, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	defer func() { _ = resp.Body.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(resp.Body, largestReply))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, &url.Error{Op: method, URL: where, Err: err})
	}
	if resp.StatusCode/100 != 2 {
		return &RefusedError{Doing: doing, Status: resp.StatusCode, Detail: detail(data)}
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// detail is what App Store Connect says in words about a refusal.
func detail(data []byte) string {
	var e struct {
		Errors []struct {
			Detail string `json:"detail"`
		} `json:"errors"`
	}
	if json.Unmarshal(data, &e) != nil || len(e.Errors) == 0 {
		return ""
	}
	return e.Errors[0].Detail
}
