package nn

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"payload/mlx"
)

// RopeParams is what a config.json says of rotary positions, under
// rope_parameters, or rope_scaling and rope_theta.
type RopeParams struct {
	Type     string  // default, linear, llama3, yarn or longrope
	Theta    float64 // the base of the wavelengths
	Factor   float64
	Original int // positions that the model was trained for before it was stretched

	LowFactor, HighFactor float64 // llama3

	BetaFast, BetaSlow float64 // yarn
	MScale, MScaleAll  float64
	NoTruncate         bool
	Attention          float64   // yarn, longrope: what rotated features are multiplied by; 0 is computed
	LongFactor, ShortF []float64 // longrope
	max                int
}

// ropeKeys says which keys each type reads; what else stands there is refused.
var ropeKeys = map[string][]string{
	"default":  {},
	"linear":   {"factor"},
	"llama3":   {"factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"},
	"yarn":     {"factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate", "attention_factor"},
	"longrope": {"factor", "original_max_position_embeddings", "long_factor", "short_factor", "attention_factor"},
}

// ParseRope reads rope_parameters or rope_scaling, which may be null or
// missing. theta is rope_theta beside it, positions max_position_embeddings.
func ParseRope(text json.RawMessage, theta float64, positions int) (RopeParams, error) {
	p := RopeParams{Type: "default", Theta: theta, max: positions, Original: positions}
	if len(text) == 0 || string(text) == "null" {
		return p, nil
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return p, fmt.Errorf("reading rope parameters: %w", err)
	}
	read := struct {
		RopeType *string   `json:"rope_type"`
		Type     *string   `json:"type"`
		Theta    *float64  `json:"rope_theta"`
		Factor   float64   `json:"factor"`
		Original int       `json:"original_max_position_embeddings"`
		Low      float64   `json:"low_freq_factor"`
		High     float64   `json:"high_freq_factor"`
		Fast     float64   `json:"beta_fast"`
		Slow     float64   `json:"beta_slow"`
		MScale   float64   `json:"mscale"`
		MScaleA  float64   `json:"mscale_all_dim"`
		Truncate *bool     `json:"truncate"`
		Att      float64   `json:"attention_factor"`
		Long     []float64 `json:"long_factor"`
		Short    []float64 `json:"short_factor"`
	}{Fast: 32, Slow: 1}
	if err := json.Unmarshal(text, &read); err != nil {
		return p, fmt.Errorf("reading rope parameters: %w", err)
	}
	switch {
	case read.RopeType != nil:
		p.Type = *read.RopeType
	case read.Type != nil:
		p.Type = *read.Type
	}
	if p.Type == "su" { // the older name of the same
		p.Type = "longrope"
	}
	known, ok := ropeKeys[p.Type]
	if !ok {
		return p, fmt.Errorf("the rope type %q is not known", p.Type)
	}
	for key, value := range keys {
		always := key == "rope_type" || key == "type" || key == "rope_theta"
		if !always && !slices.Contains(known, key) && string(value) != "null" {
			return p, fmt.Errorf("the rope type %q has the key %q, which is not read and may change the result", p.Type, key)
		}
	}
	if read.Theta != nil {
		p.Theta = *read.Theta
	}
	if read.Original > 0 {
		p.Original = read.Original
	}
	p.Factor, p.LowFactor, p.HighFactor = read.Factor, read.Low, read.High
	p.BetaFast, p.BetaSlow, p.MScale, p.MScaleAll = read.Fast, read.Slow, read.MScale, read.MScaleA
	p.NoTruncate, p.Attention = read.Truncate != nil && !*read.Truncate, read.Att
	p.LongFactor, p.ShortF = read.Long, read.Short
	return p, p.check(keys)
}

func (p RopeParams) check(keys map[string]json.RawMessage) error {
	need := map[string][]string{
		"linear": {"factor"}, "yarn": {"factor"}, "longrope": {"long_factor", "short_factor", "original_max_position_embeddings"},
		"llama3": {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"},
	}[p.Type]
	var missing []string
	for _, key := range need {
		if _, ok := keys[key]; !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("the rope type %q lacks %s", p.Type, strings.Join(missing, ", "))
	}
	if slices.Contains(need, "factor") && p.Factor <= 0 {
		return fmt.Errorf("the rope type %q has the factor %v", p.Type, p.Factor)
	}
	return nil
}

// Frequencies gives, for dims rotated features and a sequence of length
// tokens, by how many radians each of the dims/2 pairs turns a position, and
// what rotated features are multiplied by. The formulas are those of the
// reference implementation: Llama 3.1's bands, YaRN (Peng et al., 2023),
// LongRoPE (Ding et al., 2024).
func (p RopeParams) Frequencies(dims, length int) (turn []float64, multiplier float64, err error) {
	turn = make([]float64, dims/2)
	for i := range turn {
		turn[i] = 1 / math.Pow(p.Theta, float64(2*i)/float64(dims))
	}
	switch p.Type {
	case "linear":
		for i := range turn {
			turn[i] /= p.Factor
		}
	case "llama3":
		p.bands(turn)
	case "yarn":
		p.yarn(turn, dims)
		return turn, p.yarnMultiplier(), nil
	case "longrope":
		factors := p.ShortF
		if length > p.Original {
			factors = p.LongFactor
		}
		if len(factors) != len(turn) {
			return nil, 0, fmt.Errorf("longrope has %d factors for %d pairs of features", len(factors), len(turn))
		}
		for i := range turn {
			turn[i] /= factors[i]
		}
		return turn, p.longMultiplier(), nil
	}
	return turn, 1, nil
}

// bands slows the low frequencies down, leaves the high ones, and blends
// between.
func (p RopeParams) bands(turn []float64) {
	original := float64(p.Original)
	for i, f := range turn {
		wave := 2 * math.Pi / f
		switch {
		case wave > original/p.LowFactor:
			turn[i] = f / p.Factor
		case wave >= original/p.HighFactor:
			smooth := (original/wave - p.LowFactor) / (p.HighFactor - p.LowFactor)
			turn[i] = (1-smooth)*f/p.Factor + smooth*f
		}
	}
}

func (p RopeParams) yarn(turn []float64, dims int) {
	at := func(rotations float64) float64 {
		return float64(dims) * math.Log(float64(p.Original)/(rotations*2*math.Pi)) / (2 * math.Log(p.Theta))
	}
	low, high := at(p.BetaFast), at(p.BetaSlow)
	if !p.NoTruncate {
		low, high = math.Floor(low), math.Ceil(high)
	}
	low, high = max(low, 0), min(high, float64(dims-1))
	if low == high {
		high += 0.001
	}
	for i, f := range turn {
		ramp := min(max((float64(i)-low)/(high-low), 0), 1)
		turn[i] = f/p.Factor*ramp + f*(1-ramp)
	}
}

func (p RopeParams) yarnMultiplier() float64 {
	if p.Attention != 0 {
		return p.Attention
	}
	scale := func(m float64) float64 {
		if p.Factor <= 1 {
			return 1
		}
		return 0.1*m*math.Log(p.Factor) + 1
	}
	if p.MScale != 0 && p.MScaleAll != 0 {
		return scale(p.MScale) / scale(p.MScaleAll)
	}
	return scale(1)
}

func (p RopeParams) longMultiplier() float64 {
	if p.Attention != 0 {
		return p.Attention
	}
	factor := p.Factor
	if factor == 0 {
		factor = float64(p.max) / float64(p.Original)
	}
	if factor <= 1 {
		return 1
	}
	return math.Sqrt(1 + math.Log(factor)/math.Log(float64(p.Original)))
}

// Rope turns features by their position.
type Rope struct {
	how        mlx.RoPE
	long       *mlx.Array // longrope: wavelengths past the original length
	original   int
	multiplier float64

	turn, longTurn []float32 // by how many radians each pair turns a position, as MLX computes it
}

// NewRope prepares for dims rotated features, pairs half of them apart. keep
// becomes the owner of what it makes.
func NewRope(s *mlx.Scope, dims int, p RopeParams, keep func(*mlx.Array) *mlx.Array) (*Rope, error) {
	if dims <= 0 || dims%2 != 0 {
		return nil, fmt.Errorf("rotating %d features: not an even number above 0", dims)
	}
	turn, multiplier, err := p.Frequencies(dims, 0)
	if err != nil {
		return nil, err
	}
	r := &Rope{how: mlx.RoPE{Dims: dims, Base: float32(p.Theta)}, multiplier: multiplier}
	switch p.Type {
	case "default", "linear":
		if p.Type == "linear" {
			r.how.Scale = float32(1 / p.Factor)
		}
		r.turn = make([]float32, dims/2)
		step := float32(math.Log(p.Theta) / float64(dims/2))
		for i := range r.turn {
			r.turn[i] = float32(math.Exp(float64(-float32(i) * step)))
		}
	default:
		r.how.Freqs, r.turn = wavelengths(s, turn)
		keep(r.how.Freqs)
	}
	if p.Type == "longrope" {
		long, _, err := p.Frequencies(dims, p.Original+1)
		if err != nil {
			return nil, err
		}
		r.long, r.longTurn = wavelengths(s, long)
		keep(r.long)
		r.original = p.Original
	}
	return r, s.Err()
}

// wavelengths gives the inverse of turn, and the inverse of that as MLX has it.
func wavelengths(s *mlx.Scope, turn []float64) (*mlx.Array, []float32) {
	out, back := make([]float32, len(turn)), make([]float32, len(turn))
	for i, f := range turn {
		out[i] = float32(1 / f)
		back[i] = 1 / out[i]
	}
	return mlx.New(s, out), back
}

// Forward turns x [batch, heads, length, features], whose first position is
// offset, of a text of so many tokens.
func (r *Rope) Forward(s *mlx.Scope, x *mlx.Array, offset, tokens int) *mlx.Array {
	how := r.how
	if r.long != nil && tokens > r.original {
		how.Freqs = r.long
	}
	if r.multiplier != 1 {
		x = r.multiply(s, x)
	}
	return s.RoPE(x, how, offset)
}

func (r *Rope) multiply(s *mlx.Scope, x *mlx.Array) *mlx.Array {
	if r.how.Dims == x.Dim(-1) {
		return s.Multiply(x, s.Like(x, r.multiplier))
	}
	turned := s.Multiply(s.SliceAxis(x, 3, 0, r.how.Dims), s.Like(x, r.multiplier))
	return s.Concatenate(3, turned, s.SliceAxis(x, 3, r.how.Dims, x.Dim(3)))
}
