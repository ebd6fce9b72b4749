package quant

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Params{
		"affine":       {Affine, 4, 64},
		"affine:8":     {Affine, 8, 64},
		"affine:3:128": {Affine, 3, 128},
		"mxfp4":        {MXFP4, 4, 32},
		"mxfp8:8:32":   {MXFP8, 8, 32},
		"nvfp4":        {NVFP4, 4, 16},
	} {
		got, err := Parse(text)
		if err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
		if again, err := Parse(got.String()); err != nil || again != got {
			t.Errorf("%s written as %s is %v, %v", text, got, again, err)
		}
	}
	for text, want := range map[string]string{
		"":              `mode "" is not known`,
		"q4_0":          "affine, mxfp4, mxfp8, nvfp4 are",
		"affine:7":      "affine has no 7 bits, it has 2, 3, 4, 5, 6, 8",
		"affine:4:16":   "affine has no groups of 16, it has 32, 64, 128",
		"mxfp4:8":       "mxfp4 has no 8 bits, it has 4",
		"nvfp4:4:32":    "nvfp4 has no groups of 32, it has 16",
		"affine:four":   `"four" is not a number`,
		"affine:4:64:1": "more than MODE:BITS:GROUP",
	} {
		if _, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestShapes(t *testing.T) {
	three := Params{Affine, 3, 64}
	if three.Words(128) != 12 || three.Groups(128) != 2 || !three.Fits(128) || three.Fits(96) || three.Fits(0) {
		t.Errorf("a row of 128 is %d words and %d groups", three.Words(128), three.Groups(128))
	}
	row, err := three.CheckShapes([]int64{8, 512, 12}, []int64{8, 512, 2})
	if err != nil || row != 128 {
		t.Errorf("%d, %v", row, err)
	}
	for _, c := range [][2][]int64{
		{{512, 16}, {512, 2}},       // 4 bits
		{{512, 12}, {256, 2}},       // rows differ
		{{8, 512, 12}, {512, 2}},    // ranks differ
		{{12}, {2}},                 // no rows
		{{512, 0}, {512, 0}},        // nothing
		{{8, 512, 12}, {9, 512, 2}}, // experts differ
	} {
		if _, err := three.CheckShapes(c[0], c[1]); err == nil {
			t.Errorf("weight %v with scales %v passes", c[0], c[1])
		}
	}
	if !three.HasBiases() || (Params{MXFP4, 4, 32}).HasBiases() {
		t.Error("affine alone has biases")
	}
}

func TestRead(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		want   Config
	}{
		"nothing": {`{"model_type":"llama"}`, Config{}},
		"null":    {`{"quantization":null}`, Config{}},
		"old":     {`{"quantization":{"group_size":64,"bits":4}}`, Config{Default: Params{Affine, 4, 64}}},
		"mode":    {`{"quantization":{"group_size":32,"bits":8,"mode":"mxfp8"}}`, Config{Default: Params{MXFP8, 8, 32}}},
		"method":  {`{"quantization_config":{"quant_method":"mxfp4","modules_to_not_convert":["lm_head"]}}`, Config{Default: Params{MXFP4, 4, 32}, Layers: map[string]*Params{"lm_head": nil}}},
		"first":   {`{"quantization_config":{"quant_method":"gptq"},"quantization":{"group_size":64,"bits":4}}`, Config{Default: Params{Affine, 4, 64}}},
		"layers": {
			`{"quantization":{"group_size":32,"bits":4,"mode":"mxfp4","a":{"group_size":64,"bits":8},"b":false,"c":true,"d":{"mode":"nvfp4"}}}`,
			Config{Default: Params{MXFP4, 4, 32}, Layers: map[string]*Params{
				"a": {Affine, 8, 64}, "b": nil, "c": {MXFP4, 4, 32}, "d": {NVFP4, 4, 16},
			}},
		},
	} {
		got, err := Read([]byte(c.config))
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	for config, want := range map[string]string{
		`{`:                           "reading config.json",
		`{"quantization":4}`:          "reading quantization of config.json",
		`{"quantization":{"bits":4}}`: "affine needs bits and group_size",
		`{"quantization":{"group_size":64,"bits":7}}`:                                          "affine has no 7 bits",
		`{"quantization":{"group_size":64,"bits":4,"mode":"q4"}}`:                              `mode "q4" is not known`,
		`{"quantization":{"group_size":64,"bits":4,"a":{"bits":9}}}`:                           "a: affine has no 9 bits",
		`{"quantization":{"group_size":16,"bits":4,"mode":"nvfp4","a":{"global_scale":true}}}`: `a: json: unknown field "global_scale"`,
		`{"quantization":{"group_size":64,"bits":4,"a":"yes"}}`:                                "a: json",
		`{"quantization_config":{"quant_method":"awq","bits":4}}`:                              `quant_method "awq" is not supported`,
	} {
		if _, err := Read([]byte(config)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", config, err, want)
		}
	}
}

func TestFor(t *testing.T) {
	c := Config{Default: Params{Affine, 4, 64}, Layers: map[string]*Params{"a": {Affine, 8, 32}, "b": nil}}
	for path, want := range map[string]Params{"a": {Affine, 8, 32}, "b": {}, "c": {Affine, 4, 64}} {
		if got, ok := c.For(path); got != want || ok != (path != "b") {
			t.Errorf("%s: %v, %v", path, got, ok)
		}
	}
	if _, ok := (Config{}).For("a"); ok {
		t.Error("nothing is quantised, and yet a layer is")
	}
}

func TestWrite(t *testing.T) {
	const config = `{"rope_theta":1e6,"big":12345678901234567890,"quantization_config":{"quant_method":"mxfp4"},"a":[1, 2]}`
	want := Config{Default: Params{NVFP4, 4, 16}, Layers: map[string]*Params{"lm_head": nil, "x": {Affine, 8, 64}}}
	out, err := Write([]byte(config), want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Read(out)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("read again: %+v, %v", got, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(out, &fields); err != nil {
		t.Fatal(err)
	}
	if string(fields["rope_theta"]) != "1e6" || string(fields["big"]) != "12345678901234567890" || string(fields["quantization"]) != string(fields["quantization_config"]) {
		t.Errorf("%s", out)
	}
	if out, err = Write(out, Config{}); err != nil || strings.Contains(string(out), "quantization") {
		t.Errorf("nothing quantised: %s, %v", out, err)
	}
	if _, err := Write([]byte("["), want); err == nil {
		t.Error("what is no config.json passes")
	}
}
