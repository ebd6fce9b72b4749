package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"payload/internal/codesign"
	"payload/internal/config"
	"payload/internal/darwin"
	"payload/internal/folder"
	"payload/internal/notary"
	"payload/internal/pack"
	"payload/internal/run"
	"payload/internal/voice"
)

// macFlags are those of `payload package darwin` alone.
type macFlags struct {
	sign, certificate, identity, timestamp string
	diskImage                              bool
	notarize, resume                       bool
	key, keyID, issuer, submission         string
	wait                                   time.Duration
}

// Variables that stand for flags, so that no secret stands in a command line.
const (
	certificatePasswordVar = "PAYLOAD_CERTIFICATE_PASSWORD"
	notaryURLVar           = "PAYLOAD_NOTARY_URL"    // another service than Apple's
	notaryUploadVar        = "PAYLOAD_NOTARY_UPLOAD" // another store than S3
)

// The kinds of signatures.
const (
	signAdHoc       = "adhoc"
	signDeveloperID = "developer-id"
)

func (m *macFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&m.sign, "sign", signAdHoc, "darwin: sign adhoc, or developer-id with --certificate or --identity")
	f.StringVar(&m.certificate, "certificate", "", "darwin: the certificate and key in a PKCS #12 `FILE` ("+certificatePasswordVar+" holds its password)")
	f.StringVar(&m.identity, "identity", "", "darwin: the `NAME` of a certificate in a keychain; on a Mac only")
	f.StringVar(&m.timestamp, "timestamp", "", "darwin: `URL` of a time-stamping authority, or none (default: payload.yaml's)")
	f.BoolVar(&m.diskImage, "dmg", false, "darwin: make a disk image too; on a Mac only")
	f.BoolVar(&m.notarize, "notarize", false, "darwin: have Apple's notary look at the archive, and wait for it")
	f.BoolVar(&m.resume, "resume", false, "darwin: go on with notarisations left open in --out; package nothing")
	f.StringVar(&m.key, "notary-key", os.Getenv("PAYLOAD_NOTARY_KEY"), "darwin: App Store Connect's key in `FILE` (PAYLOAD_NOTARY_KEY)")
	f.StringVar(&m.keyID, "notary-key-id", os.Getenv("PAYLOAD_NOTARY_KEY_ID"), "darwin: its `ID` (PAYLOAD_NOTARY_KEY_ID)")
	f.StringVar(&m.issuer, "notary-issuer", os.Getenv("PAYLOAD_NOTARY_ISSUER"), "darwin: `ID` of the key's issuer (PAYLOAD_NOTARY_ISSUER)")
	f.StringVar(&m.submission, "notary-id", "", "darwin: with --resume, the `ID` of the submission, where its file is lost")
	f.DurationVar(&m.wait, "notary-wait", time.Hour, "darwin: wait this `LONG` for the notary")
}

// check finds what can't go together, before anything is done.
func (m *macFlags) check(cmd *cobra.Command, system string) error {
	wrong := func(format string, args ...any) error {
		return &usageError{err: fmt.Errorf(format, args...), command: cmd.CommandPath()}
	}
	if system != "darwin" {
		for _, name := range []string{
			"sign", "certificate", "identity", "timestamp", "dmg", "notarize", "resume", "notary-key", "notary-key-id", "notary-issuer", "notary-id", "notary-wait",
		} {
			if cmd.Flags().Changed(name) {
				return wrong("--%s is for darwin", name)
			}
		}
		return nil
	}
	switch developer := m.sign == signDeveloperID; {
	case m.sign != signAdHoc && !developer:
		return wrong("--sign %s: it is %s or %s", m.sign, signAdHoc, signDeveloperID)
	case developer && (m.certificate == "") == (m.identity == ""):
		return wrong("--sign %s needs one of --certificate and --identity", signDeveloperID)
	case !developer && (m.certificate != "" || m.identity != "" || m.timestamp != ""):
		return wrong("--certificate, --identity and --timestamp go with --sign %s", signDeveloperID)
	case m.notarize && !developer:
		return wrong("--notarize goes with --sign %s: the notary takes no other signatures", signDeveloperID)
	case m.submission != "" && !m.resume:
		return wrong("--notary-id goes with --resume")
	case (m.notarize || m.resume) && (m.key == "" || m.keyID == "" || m.issuer == ""):
		return wrong("asking the notary needs --notary-key, --notary-key-id and --notary-issuer")
	}
	return nil
}

// steps hands the macOS part of the work to the packaging.
func (m *macFlags) steps(a *app, f *config.File, p *pack.Options) error {
	o := darwin.Options{DiskImage: m.diskImage, Sign: codesign.Options{Prefix: f.Packages.Signing.Prefix}}
	var tools []string
	if m.diskImage {
		tools = append(tools, "hdiutil")
		if m.notarize {
			tools = append(tools, "xcrun")
		}
	}
	if m.sign == signDeveloperID {
		o.Sign.Runtime, o.Sign.Keychain, o.Sign.Timestamp = f.Packages.Signing.Runtime, m.identity, f.Packages.Signing.Timestamp
		if m.timestamp != "" {
			o.Sign.Timestamp = strings.TrimSuffix(m.timestamp, "none")
		}
	}
	if m.identity != "" {
		tools = append(tools, "codesign")
	}
	for _, tool := range tools {
		if _, err := run.LookPath(tool); err != nil {
			return fmt.Errorf("packaging for darwin: %w", err)
		}
	}
	if m.certificate != "" {
		id, err := codesign.LoadIdentity(m.certificate, os.Getenv(certificatePasswordVar))
		if err != nil {
			return err
		}
		if m.notarize && !id.DeveloperID() {
			return fmt.Errorf("signing with %q: the notary takes certificates \"Developer ID Application\" of Apple's alone", id.Certificate.Subject.CommonName)
		}
		o.Sign.Identity = id
	}
	if m.notarize {
		if _, err := m.service(a.voice); err != nil { // before all other work
			return err
		}
		o.Notarise = func(ctx context.Context, file string) error {
			_, err := m.submit(ctx, a, []string{file})
			return err
		}
	}
	darwin.Steps(p, o)
	return nil
}

func (m *macFlags) service(v *voice.Voice) (*notary.Service, error) {
	key, err := notary.LoadKey(m.key, m.keyID, m.issuer)
	if err != nil {
		return nil, err
	}
	return &notary.Service{
		URL: os.Getenv(notaryURLVar), Upload: os.Getenv(notaryUploadVar), Key: key, Bound: m.wait, Every: min(30*time.Second, m.wait/4), Say: v.Say,
	}, nil
}

// notarised is what the notary found, as --json prints it.
type notarised struct {
	Schema string           `json:"schema"`
	Notary []notary.Outcome `json:"notary"`
}

const notarySchema = "payload.notarize/v1"

// submit has the notary look at archives of a finished release. Archives can't
// carry its ticket: a Mac asks for it when a file is first opened.
func (m *macFlags) submit(ctx context.Context, a *app, archives []string) ([]notary.Outcome, error) {
	service, err := m.service(a.voice)
	if err != nil {
		return nil, err
	}
	var outcomes []notary.Outcome
	refused := false
	for _, archive := range archives {
		var out notary.Outcome
		err := a.voice.Step("notarise "+filepath.Base(archive), func() (err error) {
			if m.submission != "" {
				out, err = service.Resume(ctx, archive, m.submission)
			} else {
				out, err = service.Notarise(ctx, archive)
			}
			return err
		})
		if err != nil {
			return outcomes, err
		}
		outcomes = append(outcomes, out)
		for _, issue := range out.Issues {
			a.voice.Say("%s: %s: %s", issue.Severity, darwin.InPayload(issue.Path, issue.Arch), issue.Message)
		}
		refused = refused || out.Status != notary.Accepted
		a.voice.Say("%s: submission %s is %s", filepath.Base(archive), out.ID, strings.ToLower(out.Status))
		if out.Status == notary.Accepted && filepath.Ext(archive) == ".zip" {
			a.voice.Say("%s carries no ticket, as no archive can: a Mac asks for it when a file of it is first opened", filepath.Base(archive))
		}
	}
	if refused {
		return outcomes, &reported{code: exitVerification}
	}
	return outcomes, nil
}

// resumeNotary goes on with what an earlier run left open.
func (m *macFlags) resumeNotary(ctx context.Context, a *app, out string) error {
	var archives []string
	if m.submission != "" {
		found, err := folder.Glob(out, "*.zip")
		if err != nil {
			return err
		}
		if archives = found; len(found) != 1 {
			return fmt.Errorf("going on with submission %s: %s holds %d .zip archives, and it is of one", m.submission, out, len(found))
		}
	} else {
		var err error
		if archives, err = notary.Open(out); err != nil {
			return err
		}
	}
	outcomes, err := m.submit(ctx, a, archives)
	if a.json && (err == nil || errors.As(err, new(*reported))) {
		err = errors.Join(a.printJSON(notarised{notarySchema, outcomes}), err)
	}
	return err
}

// submitted are the archives of a finished release that the notary takes. Disk
// images have been to it before, since they carry its ticket.
func submitted(res pack.Result) []string {
	var list []string
	for _, p := range res.Packages {
		for _, f := range p.Files {
			if f.Kind == "archive" && filepath.Ext(f.Name) == ".zip" && len(f.Parts) == 0 {
				list = append(list, filepath.Join(res.Out, f.Name))
			}
		}
	}
	return list
}
