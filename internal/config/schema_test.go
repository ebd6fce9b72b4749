package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

const schemaFile = "../../docs/payload.schema.json"

func compiled(t *testing.T) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	schema, err := c.Compile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	return schema
}

// TestSchemaKeys holds the published schema and the structs equal, both ways.
func TestSchemaKeys(t *testing.T) {
	top := compiled(t)
	component := top.Properties["components"].AdditionalProperties.(*jsonschema.Schema).Ref
	watch := component.Properties["watch"].Ref
	rule := watch.Properties["rules"].Items2020.Ref
	packages := top.Properties["packages"].Ref
	items := func(key string) *jsonschema.Schema { return component.Properties[key].Items2020.Ref }
	checks := func(key string) *jsonschema.Schema { return top.Properties[key].Items2020.Ref }
	for _, c := range []struct {
		of     any
		schema *jsonschema.Schema
	}{
		{document{}, top},
		{Component{}, component},
		{Mirror{}, items("mirrors")},
		{Copy{}, items("copies")},
		{Coupled{}, items("coupled")},
		{Prebuilt{}, items("prebuilt")},
		{Toolchain{}, checks("toolchains")},
		{Packages{}, packages},
		{Group{}, packages.Properties["groups"].Items2020.Ref},
		{Origin{}, packages.Properties["origins"].Items2020.Ref},
		{Affected{}, checks("affected")},
		{Required{}, checks("required")},
		{Generated{}, checks("generated")},
		{Waiver{}, checks("waivers")},
		{Layout{}, top.Properties["layout"].Ref},
		{Watch{}, watch},
		{Rule{}, rule},
		{Defaults{}, rule.Properties["defaults"].Ref},
	} {
		var keys, described []string
		typ := reflect.TypeOf(c.of)
		for _, field := range reflect.VisibleFields(typ) {
			key, inline, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if inline == "inline" {
				continue // its fields come by themselves
			}
			if key == "" {
				t.Errorf("%s.%s has no yaml tag", typ, field.Name)
			}
			if key != "-" {
				keys = append(keys, key)
			}
		}
		for key, property := range c.schema.Properties {
			described = append(described, key)
			if property.Description == "" {
				t.Errorf("%s of %s is not described", key, typ)
			}
		}
		slices.Sort(keys)
		slices.Sort(described)
		if !slices.Equal(keys, described) {
			t.Errorf("%s has %v, %s %v", typ, keys, schemaFile, described)
		}
		if extra, ok := c.schema.AdditionalProperties.(bool); c.schema != top && (!ok || extra) {
			t.Errorf("the schema lets unknown keys of %s pass", typ)
		}
	}
}

func validate(t *testing.T, schema *jsonschema.Schema, text string) error {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(value)
}

// TestSchemaAgrees holds that the schema passes what loads and refuses what
// does not, as far as a schema can tell.
func TestSchemaAgrees(t *testing.T) {
	schema := compiled(t)
	files, err := filepath.Glob("../../*/*/testdata/*/repo/" + FileName)
	if err != nil || len(files) == 0 {
		t.Fatalf("%d fixtures, %v", len(files), err)
	}
	for _, file := range append(files, "../../"+FileName) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validate(t, schema, string(text)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	if err := validate(t, schema, good); err != nil {
		t.Error(err)
	}
	for name, change := range map[string][2]string{
		"version":      {"version: 1", "version: 2"},
		"unknown key":  {"    pin: TOY_VERSION", "    pinn: TOY_VERSION"},
		"no upstream":  {"    upstream: ../upstream\n", ""},
		"short commit": {"0c1e57098bba43ac29e6e3b677cdceebdd22334f", "0c1e570"},
		"no digest":    {", sha256: 832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e", ""},
		"two kinds":    {"pypi: toy==1.0", "pypi: toy==1.0, archive: toy"},
		"no ref":       {"{ref: b2, ", "{"},
		"bad name":     {"  other:", "  \"a b\":"},
		"no rules":     {"      rules:\n", "      ruled:\n"},
		"bad category": {"category: server", "category: serve"},
		"bad find":     {"find: flags", "find: flag"},
		"bad severity": {"{added: off}", "{added: of}"},
		"bad id":       {"id: server.flag", "id: Server.flag"},
	} {
		text := strings.Replace(good, change[0], change[1], 1)
		if _, err := load(t, text); err == nil {
			t.Errorf("%s: loads", name)
		}
		if err := validate(t, schema, text); err == nil {
			t.Errorf("%s: the schema lets it pass", name)
		}
	}
}
