package llama_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlxrunner/model"
	_ "payload/mlxrunner/model/llama"
	"payload/mlxrunner/tokenizer"
)

const tiny = "../../../internal/verify/tinymodel"

// The tiny model finds likely what llama-server does, in texts that it has
// not learnt.
func TestProbes(t *testing.T) {
	s := mlxtest.Scope(t)
	dir := filepath.Join(tiny, "safetensors")
	m, err := model.Load(context.Background(), s, dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok, err := tokenizer.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Probes []struct {
			Prompt    string
			Tolerance float64
			Top       []struct {
				Token   int
				Logprob float64
			}
		}
	}
	text, err := os.ReadFile(filepath.Join(tiny, "expected.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Probes) == 0 {
		t.Fatal("no probes")
	}
	for _, p := range expected.Probes {
		ids, err := tok.Encode(p.Prompt, true)
		if err != nil {
			t.Fatal(err)
		}
		sub, kv := s.Sub(), m.NewCache()
		logits := m.Forward(sub, array(sub, ids), kv)
		last := sub.AsType(sub.SliceAxis(logits, 1, len(ids)-1, len(ids)), mlx.Float32)
		got, err := mlx.Floats(sub, sub.Subtract(last, sub.LogSumExp(last, true, -1)))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range p.Top {
			if off := float64(got[want.Token]) - want.Logprob; off > p.Tolerance || off < -p.Tolerance {
				t.Errorf("%q: token %d has the logprob %.4f, want %.4f within %v", p.Prompt, want.Token, got[want.Token], want.Logprob, p.Tolerance)
			}
		}
		kv.Free()
		if err := sub.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func array(s *mlx.Scope, ids []int) *mlx.Array {
	out := make([]int32, len(ids))
	for i, id := range ids {
		out[i] = int32(id)
	}
	return mlx.New(s, out, 1, len(ids))
}

// Half floats become float32 on the processor, unless they are asked for.
func TestFloatsOfTheProcessor(t *testing.T) {
	s := mlxtest.Scope(t)
	half := mlx.Float16
	for want, o := range map[mlx.Dtype]model.Options{mlx.Float32: {}, half: {Float: &half}} {
		m, err := model.Load(context.Background(), s, filepath.Join(tiny, "safetensors"), o)
		if err != nil {
			t.Fatal(err)
		}
		kv := m.NewCache()
		if got := m.Forward(s, array(s, []int{5, 6}), kv).Dtype(); got != want {
			t.Errorf("logits are %v, want %v", got, want)
		}
		kv.Free()
		m.Close()
	}
}
