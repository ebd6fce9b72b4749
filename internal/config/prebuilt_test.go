package config

import (
	"strings"
	"testing"
)

const compiled64 = `version: 1
components:
  toy:
    pin: TOY_VERSION
    upstream: ../upstream
    prebuilt:
      - ref: v1.2
        presets: [one, two]
        pypi: toy-bin==1.2
        platform: manylinux_2_35_x86_64
        sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
toolchains:
  - name: other
    pypi: cc==3
    platform: manylinux_2_12_x86_64
    sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
`

func TestPrebuilt(t *testing.T) {
	f, err := Parse([]byte(compiled64))
	if err != nil {
		t.Fatal(err)
	}
	c := f.Components[0]
	if got := c.PrebuiltOf("v1.2", "two"); len(got) != 1 || got[0].Mirror().ID() != "pypi:toy-bin==1.2/manylinux_2_35_x86_64" {
		t.Errorf("got %+v", got)
	}
	if got := c.PrebuiltOf("v1.2", "three"); len(got) != 0 {
		t.Errorf("for another preset: %+v", got)
	}
	if got := c.PrebuiltOf("v1.3", "one"); len(got) != 0 {
		t.Errorf("of another ref: %+v", got)
	}
	if m := f.Toolchains[0].Mirror(); m.Ref != "3" || m.Kind() != "pypi" {
		t.Errorf("the toolchain is %+v", m)
	}
	for name, c := range map[string]struct{ old, new, want string }{
		"another version":  {"toy-bin==1.2", "toy-bin==1.3", "toy-bin==1.3 is not v1.2, which is pinned"},
		"no ref":           {"ref: v1.2", "ref: ''", "no ref"},
		"no presets":       {"[one, two]", "[]", "no presets"},
		"no platform":      {"        platform: manylinux_2_35_x86_64\n", "", "needs the platform of its wheel"},
		"two places":       {"pypi: toy-bin==1.2", "archive: x\n        pypi: toy-bin==1.2", "exactly one of pypi and archive"},
		"a short digest":   {"832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e", "832d", "not 64 hexadecimal digits"},
		"a path outside":   {"pypi: toy-bin", "path: ../x\n        pypi: toy-bin", "leaves the download"},
		"an unknown key":   {"    presets", "    pressets", "pressets"},
		"a toolchain":      {"name: other", "name: ''", "letters, digits"},
		"toolchain's kind": {"    pypi: cc==3\n", "", "toolchain other: exactly one"},
	} {
		text := strings.Replace(compiled64, c.old, c.new, 1)
		if text == compiled64 {
			t.Errorf("%s: nothing replaced", name)
		}
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestRunsOn(t *testing.T) {
	for _, c := range []struct {
		tag, system, arch string
		want              bool
	}{
		{"manylinux_2_35_x86_64", "linux", "amd64", true},
		{"manylinux_2_35_aarch64", "linux", "arm64", true},
		{"manylinux_2_35_aarch64", "linux", "amd64", false},
		{"macosx_14_0_arm64", "darwin", "arm64", true},
		{"macosx_14_0_arm64", "linux", "arm64", false},
		{"win_amd64", "windows", "amd64", true},
		{"win_amd64", "darwin", "amd64", false},
		{"", "linux", "amd64", true},
	} {
		if got := RunsOn(c.tag, c.system, c.arch); got != c.want {
			t.Errorf("%q on %s/%s: %t", c.tag, c.system, c.arch, got)
		}
	}
}
