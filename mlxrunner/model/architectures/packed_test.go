package architectures_test

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"strings"
	"testing"

	"payload/mlx"
	"payload/mlx/mlxtest"
	"payload/mlx/quant"
	"payload/mlxrunner/model"
)

// wider gives a case with heads of 32 features, or false where that is not what
// it is about.
func wider(t *testing.T, g golden) (golden, bool) {
	t.Helper()
	var config struct {
		HeadDim int             `json:"head_dim"`
		Quant   json.RawMessage `json:"quantization"`
	}
	if err := json.Unmarshal(g.Config, &config); err != nil {
		t.Fatal(err)
	}
	if config.HeadDim != 16 || config.Quant != nil || g.Name == "phi3 long" {
		return g, config.HeadDim == 32
	}
	g.Config = with(t, g.Config, map[string]any{"head_dim": 32})
	g.Tensors = maps.Clone(g.Tensors)
	for name, shape := range g.Tensors {
		_, part, found := strings.Cut(name, "self_attn.")
		switch {
		case !found || part == "sinks" || part == "o_proj.bias":
		case part == "o_proj.weight":
			g.Tensors[name] = []int{shape[0], 2 * shape[1]}
		default:
			g.Tensors[name] = append([]int{2 * shape[0]}, shape[1:]...)
		}
	}
	return g, true
}

// Packed keys and values give about the logits of plain ones, in every
// architecture: sinks, soft caps and windows included. Far is measured against
// how far logits are from each other.
func TestPackedKeysAreClose(t *testing.T) {
	for _, g := range read(t).Cases {
		g, ok := wider(t, g)
		if !ok {
			continue
		}
		t.Run(g.Name, func(t *testing.T) {
			s := mlxtest.Scope(t)
			m, err := model.Load(context.Background(), s, checkpoint(t, s, g), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			plain := forward(t, s, m, g.Tokens, 24)
			for bits, limit := range map[int]float64{8: 0.02, 4: 0.25} {
				for _, chunk := range []int{24, 7} {
					kv := m.NewCache()
					if err := kv.Pack(quant.Params{Mode: quant.Affine, Bits: bits, Group: 32}); err != nil {
						t.Fatal(err)
					}
					off := distance(forwardWith(t, s, m, kv, g.Tokens, chunk), plain)
					if off == 0 || off > limit {
						t.Errorf("%d bits, chunks of %d: off by %.4f of the deviation of logits, at most %v", bits, chunk, off, limit)
					}
				}
			}
		})
	}
}

// distance is the root of the mean square of the difference, in parts of want's
// own deviation.
func distance(got, want []float32) float64 {
	mean, square, off := 0.0, 0.0, 0.0
	for i := range want {
		mean += float64(want[i]) / float64(len(want))
	}
	for i := range want {
		square += math.Pow(float64(want[i])-mean, 2)
		off += math.Pow(float64(got[i])-float64(want[i]), 2)
	}
	return math.Sqrt(off / square)
}

// A head that is no whole number of groups is refused.
func TestPackedKeysMustFit(t *testing.T) {
	s := mlxtest.Scope(t)
	g := find(t, "llama")
	m, err := model.Load(context.Background(), s, checkpoint(t, s, g), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	kv := m.NewCache()
	defer kv.Free()
	if err := kv.Pack(quant.Params{Mode: quant.Affine, Bits: 8, Group: 32}); err != nil {
		t.Fatal(err)
	}
	bad := mlx.NewScope(s.Stream())
	m.Forward(bad, row(bad, g.Tokens), kv)
	mlxtest.Fails(t, bad.Close(), "affine:8:32", "16 features")
}
