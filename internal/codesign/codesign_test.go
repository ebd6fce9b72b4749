package codesign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/blacktop/go-macho"
	"github.com/digitorus/pkcs7"
	"github.com/digitorus/timestamp"

	"payload/internal/machofile"
	"payload/internal/testkit"
)

// signer is an identity that is read from a file, as a user's.
func signer(t *testing.T, a *testkit.Authority) *Identity {
	t.Helper()
	file := a.DeveloperID(t)
	if _, err := LoadIdentity(file, "wrong"); err == nil {
		t.Error("a wrong password opens the file")
	}
	id, err := LoadIdentity(file, testkit.CertificatePassword)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// tree is a payload with a program, a library without extension, a universal
// library, and data.
func tree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, filepath.FromSlash(name)) }
	testkit.MachO{Program: true, MacOS: [2]uint32{14, 0}, Needs: []string{"/usr/lib/libSystem.B.dylib"}}.File(t, at("tool"))
	testkit.MachO{ID: "@rpath/plain", MacOS: [2]uint32{14, 0}, Bare: true}.File(t, at("lib/plain"))
	var inputs []machofile.Input
	for i, amd := range []bool{false, true} {
		part := filepath.Join(t.TempDir(), "part")
		testkit.MachO{AMD64: amd, ID: "@rpath/libfat.dylib", MacOS: [2]uint32{14, 0}, Bare: i == 0}.File(t, part)
		data := read1(t, part)
		m, err := machofile.Thin(data)
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, machofile.Input{Slice: m.Slice(), From: bytes.NewReader(data)})
	}
	var fat bytes.Buffer
	if _, err := machofile.Join(&fat, inputs); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"lib/libfat.dylib": fat.String(), "fake.dylib": "not code", "empty": ""} {
		if err := os.WriteFile(at(name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func read1(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestAdHoc(t *testing.T) {
	dir := tree(t)
	signed, err := Tree(t.Context(), dir, Options{Prefix: "org.example."})
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, s := range signed {
		order = append(order, s.Path+" "+s.Identifier+" "+strings.Join(s.Images, "+"))
	}
	want := []string{"lib/libfat.dylib org.example.libfat amd64+arm64", "lib/plain org.example.plain arm64", "tool org.example.tool arm64"}
	if !slices.Equal(order, want) {
		t.Errorf("signed %q, want %q", order, want)
	}
	if string(read1(t, filepath.Join(dir, "fake.dylib"))) != "not code" {
		t.Error("a file that isn't Mach-O was touched")
	}
	// Another reader's opinion, and the same bytes once more.
	first := map[string]string{}
	for _, s := range signed {
		first[s.Path] = string(read1(t, filepath.Join(dir, filepath.FromSlash(s.Path))))
	}
	f, err := macho.Open(filepath.Join(dir, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if cs := f.CodeSignature(); cs == nil || cs.CodeDirectories[0].ID != "org.example.tool" {
		t.Errorf("go-macho reads %+v", cs)
	}
	if _, err := Tree(t.Context(), dir, Options{Prefix: "org.example."}); err != nil {
		t.Fatal(err)
	}
	for p, text := range first {
		if string(read1(t, filepath.Join(dir, filepath.FromSlash(p)))) != text {
			t.Errorf("%s: signing what is signed gives other bytes", p)
		}
	}
}

// A byte that changes after signing is found, whichever image it is in.
func TestCheckFindsChanges(t *testing.T) {
	dir := tree(t)
	if _, err := Tree(t.Context(), dir, Options{}); err != nil {
		t.Fatal(err)
	}
	data := read1(t, filepath.Join(dir, "lib", "libfat.dylib"))
	list, err := machofile.Slices(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		harmed := bytes.Clone(data)
		harmed[s.Offset+0x2345] ^= 1
		var page *machofile.PageError
		if _, err := Check(harmed, nil); !errors.As(err, &page) || !strings.Contains(err.Error(), s.Arch()) {
			t.Errorf("a changed byte in the image for %s: %v", s.Arch(), err)
		}
	}
}

func TestCertificate(t *testing.T) {
	a := testkit.NewAuthority(t)
	id := signer(t, a)
	if !id.DeveloperID() || id.Team != "TEAM123456" || len(id.Chain) != 1 {
		t.Fatalf("identity %+v", id)
	}
	asked := 0
	url := stampServer(t, a, &asked, func(b []byte) []byte { return b })
	dir := tree(t)
	o := Options{
		Identity: id, Runtime: true, Timestamp: url,
		Entitlements: map[string]Entitlements{"tool": {"com.apple.security.cs.allow-jit": true, "keychain-access-groups": []any{"a", "b"}}},
	}
	signed, err := Tree(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if asked != 4 { // images
		t.Errorf("%d timestamps for %d files", asked, len(signed))
	}
	for _, s := range signed {
		data := read1(t, filepath.Join(dir, filepath.FromSlash(s.Path)))
		if _, err := Check(data, id); err != nil {
			t.Errorf("%s: %v", s.Path, err)
		}
		if _, err := Check(data, signer(t, a)); err == nil {
			t.Errorf("%s: another certificate will do", s.Path)
		}
	}
	f, err := macho.Open(filepath.Join(dir, "tool"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cs := f.CodeSignature()
	d := cs.CodeDirectories[0]
	if d.TeamID != "TEAM123456" || d.Header.Flags != 0x10000 || !strings.Contains(cs.Entitlements, "<key>com.apple.security.cs.allow-jit</key>\n<true/>") {
		t.Errorf("team %q, flags %#x, entitlements %s", d.TeamID, uint32(d.Header.Flags), cs.Entitlements)
	}
	// The DER form: [APPLICATION 16] { 1, [16] { { key, true }, … } }.
	if got := hex.EncodeToString(cs.EntitlementsDER[:7]); !strings.HasPrefix(got, "70") || !bytes.Contains(cs.EntitlementsDER, []byte("allow-jit\x01\x01\xff")) {
		t.Errorf("DER entitlements %x", cs.EntitlementsDER)
	}
	checkTimestamp(t, cs.CMSSignature)
}

// checkTimestamp makes sure that the token is about this signature.
func checkTimestamp(t *testing.T, cms []byte) {
	t.Helper()
	p7, err := pkcs7.Parse(cms)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range p7.Signers[0].UnauthenticatedAttributes {
		if a.Type.Equal(oidTimestamp) {
			got, err := timestamp.Parse(a.Value.Bytes)
			h := crypto.SHA256.New()
			h.Write(p7.Signers[0].EncryptedDigest)
			if err != nil || !bytes.Equal(got.HashedMessage, h.Sum(nil)) {
				t.Errorf("timestamp %+v, %v", got, err)
			}
			return
		}
	}
	t.Error("the signature has no timestamp")
}

// stampServer is a time-stamping authority; change makes its answers wrong.
func stampServer(t *testing.T, a *testkit.Authority, asked *int, change func([]byte) []byte) string {
	t.Helper()
	cert, key := a.Issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "Clock"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageTimeStamping}})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked++
		body, _ := io.ReadAll(r.Body)
		req, err := timestamp.ParseRequest(body)
		if err != nil {
			t.Error(err)
			return
		}
		ts := timestamp.Timestamp{
			HashAlgorithm: req.HashAlgorithm, HashedMessage: change(req.HashedMessage), Time: time.Now(), Nonce: req.Nonce,
			Policy: asn1.ObjectIdentifier{1, 2, 3}, AddTSACertificate: true,
		}
		out, err := ts.CreateResponseWithOpts(cert, key, crypto.SHA256)
		if err != nil {
			t.Error(err)
		}
		_, _ = w.Write(out)
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

// What can't be signed stays as it was.
func TestRefused(t *testing.T) {
	a := testkit.NewAuthority(t)
	wrongStamp := stampServer(t, a, new(int), func(b []byte) []byte { return append([]byte{^b[0]}, b[1:]...) })
	down := httptest.NewServer(http.NotFoundHandler())
	down.Close()
	for _, c := range []struct {
		name string
		o    Options
		harm func(t *testing.T, dir string)
		want string
	}{
		{"no room for the command", Options{}, func(t *testing.T, dir string) {
			t.Helper()
			data := read1(t, filepath.Join(dir, "lib", "plain"))
			m, err := machofile.Thin(data)
			if err != nil {
				t.Fatal(err)
			}
			for m.AddRpath("@loader_path/somewhere") == nil { // until it is full
			}
			if err := os.WriteFile(filepath.Join(dir, "lib", "plain"), m.Bytes(), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "lib/plain: its load commands have room for"},
		{"a timestamp of something else", Options{Identity: signer(t, a), Timestamp: wrongStamp}, nil, "the answer is for another question"},
		{"no authority", Options{Identity: signer(t, a), Timestamp: down.URL}, nil, "asking " + down.URL + " for a timestamp"},
		{"entitlements for no program", Options{Entitlements: map[string]Entitlements{"lib/plain": {"x": true}}}, nil, "signing lib/plain: entitlements are declared for it"},
		{"entitlements of another kind", Options{Entitlements: map[string]Entitlements{"tool": {"x": 1.5}}}, nil, "the entitlement x is neither"},
		{"a bundle", Options{}, func(t *testing.T, dir string) {
			t.Helper()
			if err := os.Mkdir(filepath.Join(dir, "X.framework"), 0o755); err != nil {
				t.Fatal(err)
			}
		}, "X.framework: it is a bundle"},
		{"damaged", Options{}, func(t *testing.T, dir string) {
			t.Helper()
			data := read1(t, filepath.Join(dir, "lib", "libfat.dylib"))
			if err := os.WriteFile(filepath.Join(dir, "lib", "libfat.dylib"), data[:len(data)/2], 0o755); err != nil {
				t.Fatal(err)
			}
		}, "lib/libfat.dylib: its image for "},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := tree(t)
			if c.harm != nil {
				c.harm(t, dir)
			}
			before := read1(t, filepath.Join(dir, "tool"))
			_, err := Tree(context.Background(), dir, c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if !bytes.Equal(before, read1(t, filepath.Join(dir, "tool"))) {
				t.Error("the program was changed")
			}
		})
	}
}

func TestCertificatesRefused(t *testing.T) {
	a := testkit.NewAuthority(t)
	sign := []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	for name, c := range map[string]struct {
		cert *x509.Certificate
		want string
	}{
		"for a server":      {&x509.Certificate{ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}, "not for signing code"},
		"expired":           {&x509.Certificate{ExtKeyUsage: sign, NotBefore: time.Unix(0, 0), NotAfter: time.Unix(86400, 0)}, "valid from 1970-01-01 to 1970-01-02"},
		"without its chain": {&x509.Certificate{ExtKeyUsage: sign, ExtraExtensions: []pkix.Extension{{Id: oidDeveloperID, Value: []byte{5, 0}}}}, "export it together with its chain"},
	} {
		cert, key := a.Issue(t, c.cert)
		if _, err := NewIdentity(cert, key, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestToolArgs(t *testing.T) {
	got := toolArgs("lib/x.dylib", "org.example.x", "e.plist", Options{Keychain: "Developer ID Application: Nobody", Runtime: true, Timestamp: "http://t.example"})
	want := []string{
		"codesign", "--sign", "Developer ID Application: Nobody", "--force", "--identifier", "org.example.x", "--options", "runtime",
		"--entitlements", "e.plist", "--timestamp=http://t.example", "lib/x.dylib",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
